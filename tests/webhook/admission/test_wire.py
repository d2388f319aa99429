from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any

import pytest

from tests.patience import PATIENCE_SECONDS
from webhook.admission import wire
from webhook.admission.wire import AdmissionError, LargePods, LargePodsError


def body(**request: object) -> bytes:
    fields = {"uid": "u-1", "operation": "CREATE", **request}
    wrapped = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    return json.dumps(wrapped).encode()


def response_of(response: wire.AdmissionResponse) -> dict[str, Any]:
    wrapped = json.loads(wire.encode(response))
    assert (wrapped["apiVersion"], wrapped["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    fields: dict[str, Any] = wrapped["response"]
    return fields


NESTED = b'{"x":' * 10_000
WRONG = {
    "empty": (b"", "truncated"),
    "not JSON": (b"<html>", "malformed"),
    "not an object": (b"[]", "expected `object`"),
    "not UTF-8": (b'{"kind": "\xff"}', "not UTF-8"),
    "not UTF-8 in a field of a pod that is not read": (
        body(object={"spec": {"affinity": {"podAffinity": "X"}}}).replace(b"X", b"\xff"),
        "not UTF-8",
    ),
    "no kind": (b"{}", "expected `admission.k8s.io/v1 AdmissionReview`"),
    "another kind": (body().replace(b"AdmissionReview", b"Pod"), "not `admission.k8s.io/v1 Pod`"),
    "an older version": (body().replace(b"/v1", b"/v1beta1"), "v1beta1"),
    "no request": (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        "no `request`",
    ),
    "no uid": (body().replace(b'"uid"', b'"id"'), "missing required field `uid`"),
    "an empty uid": (body(uid=""), "`$.request.uid`"),
    "a uid that is no text": (body(uid=7), "`$.request.uid`"),
    "a huge uid": (body(uid="u" * 10_000), "`$.request.uid`"),
    "labels that are no object": (body(userInfo=[]), "`$.request.userInfo`"),
    "without an end": (NESTED, "truncated"),
    "text after its end": (body() + b"x", "malformed"),
}


def test_a_large_review_that_nests_deeply_is_read_up_to_its_object() -> None:
    deep = b"[" * 9_000 + b"]" * 9_000
    pod = b'{"metadata":{"managedFields":[%b,"%b"]}}' % (deep, b"x" * 200_000)
    request = b'{"uid":"u","operation":"CREATE","namespace":"shop","object":%b}' % pod
    text = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":%b}' % request
    found = wire.decode(text)
    assert (found.uid, found.namespace, bytes(found.object)) == ("u", "shop", b"")


@pytest.mark.parametrize(("text", "reason"), WRONG.values(), ids=WRONG)
def test_a_malformed_review_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(AdmissionError) as failure:
        wire.decode(text)
    assert reason.lower() in str(failure.value).lower()


@pytest.mark.parametrize("text", [body(uid="u" * 10**6), b'{"apiVersion":"' + b"x" * 10**6 + b'"}'])
def test_a_huge_input_is_not_echoed(text: bytes) -> None:
    with pytest.raises(AdmissionError) as failure:
        wire.decode(text)
    assert len(str(failure.value)) < 400


def test_an_object_is_decoded_on_demand() -> None:
    request = wire.decode(body(object={"spec": "not a pod"}))
    with pytest.raises(AdmissionError, match=r"the object is not a pod: .*`\$\.spec`"):
        request.pod()


def test_the_object_of_a_deletion_is_no_pod() -> None:
    with pytest.raises(AdmissionError, match="the object is not a pod"):
        wire.decode(body(object=None)).pod()


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "UPDATE"},
        {"subResource": "eviction"},
        {"resource": {"group": "", "version": "v1", "resource": "nodes"}},
        {"resource": {"group": "metrics.k8s.io", "version": "v1", "resource": "pods"}},
    ],
)
def test_only_the_creation_of_a_pod_itself_creates_a_pod(
    change: dict[str, Any],
) -> None:
    pods = {"group": "", "version": "v1", "resource": "pods"}
    assert wire.decode(body(resource=pods)).creates_pod
    assert not wire.decode(body(**{"resource": pods, **change})).creates_pod


def binding(**changes: object) -> bytes:
    pods = {"group": "", "version": "v1", "resource": "pods"}
    return body(**{"resource": pods, "subResource": "binding", **changes})


def test_a_binding_says_which_pod_goes_to_which_node() -> None:
    found = wire.decode(
        binding(
            object={
                "metadata": {"name": "web", "namespace": "shop", "uid": "u-7"},
                "target": {"kind": "Node", "name": "node-a"},
            }
        )
    )
    assert found.binds_pod
    assert not found.creates_pod
    decoded = found.binding()
    assert (decoded.metadata.name, decoded.metadata.uid) == ("web", "u-7")
    assert decoded.target.is_node
    assert decoded.target.name == "node-a"


@pytest.mark.parametrize(
    ("change", "binds"),
    [
        ({}, True),
        ({"resource": {"version": "v1", "resource": "bindings"}, "subResource": ""}, True),
        ({"resource": {"version": "v1", "resource": "bindings"}}, False),
        ({"operation": "UPDATE"}, False),
        ({"subResource": "eviction"}, False),
        ({"resource": {"group": "x", "version": "v1", "resource": "pods"}}, False),
    ],
)
def test_pods_are_bound_through_two_resources(change: dict[str, Any], binds: bool) -> None:  # noqa: FBT001
    assert wire.decode(binding(**change)).binds_pod is binds


@pytest.mark.parametrize("target", [{"kind": "Pod", "name": "node-a"}, {"kind": "Node"}, {}])
def test_a_binding_to_something_else_is_to_no_node(target: dict[str, str]) -> None:
    found = wire.decode(binding(object={"metadata": {"name": "web"}, "target": target}))
    assert not found.binding().target.is_node


_TARGET = {"kind": "Node", "name": "node-a"}


@pytest.mark.parametrize(
    "obj",
    [
        None,
        {},
        {"metadata": {}, "target": "node-a"},
        "text",
        {"metadata": {"name": "x" * 254}, "target": _TARGET},
        {"metadata": {"uid": "x" * 254}, "target": _TARGET},
        {"metadata": {}, "target": {"name": "x" * 254}},
    ],
)
def test_an_object_that_is_no_binding_is_told(obj: object) -> None:
    with pytest.raises(AdmissionError, match="the object is not a binding"):
        wire.decode(binding(object=obj)).binding()


def test_expressions_see_the_request_as_kubernetes_names_it() -> None:
    fields = {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "userInfo": {"username": "alice", "groups": ["dev"], "extra": {"k": ["v"]}},
        "options": {"kind": "CreateOptions"},
    }
    variables = wire.decode(body(**fields)).variables()
    assert {name: variables[name] for name in fields} == fields
    assert variables["requestKind"] == fields["kind"]
    assert variables["dryRun"] is False
    assert "object" not in variables


def test_a_patch_travels_as_base64_with_its_type() -> None:
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]
    answer = response_of(wire.allowed("u-1", patch=wire.json_patch(operations)))
    assert answer["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(answer["patch"])) == operations


def test_no_operations_is_no_patch_at_all() -> None:
    assert response_of(wire.allowed("u-1")) == {"uid": "u-1", "allowed": True}


def test_a_denial_says_forbidden_and_why() -> None:
    assert response_of(wire.denied("u-1", "exceeded quota: team")) == {
        "uid": "u-1",
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "exceeded quota: team"},
    }


def test_a_denial_may_say_that_the_cluster_has_changed() -> None:
    answer = response_of(wire.denied("u-1", "the node is full", status=wire.CONFLICT))
    assert (answer["status"]["code"], answer["status"]["reason"]) == (409, "Conflict")


def test_warnings_are_short_few_and_on_one_line() -> None:
    # 4096 runes in all is what the API server passes on: 16 of 256.
    answer = response_of(wire.allowed("u", warnings=["a\n\x00b", "x" * 5000, *["y"] * 50]))
    assert answer["warnings"][0] == "a b"
    assert answer["warnings"][1].endswith("x...")
    assert len(answer["warnings"]) == 16
    assert sum(map(len, answer["warnings"])) <= 4096


def test_audit_annotations_are_bounded() -> None:
    answer = response_of(wire.allowed("u", audit_annotations={"decision": "x" * 5000}))
    assert len(answer["auditAnnotations"]["decision"]) == 512


def sent(**request: object) -> bytes:
    """Return a review as the API server writes it: in this order, without spaces."""
    fields = {"uid": "u-1", "namespace": "shop", "operation": "CREATE", **request}
    wrapped = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": fields}
    return json.dumps(wrapped, separators=(",", ":")).encode()


def test_of_a_review_that_was_not_read_to_its_end_all_but_the_objects_is_known() -> None:
    whole = sent(userInfo={"username": ',"object":{'}, object={"spec": {}}, oldObject={})
    request = wire.decode_beginning(whole[:-20])
    assert (request.uid, request.namespace, request.operation) == ("u-1", "shop", "CREATE")
    assert request.user_info == {"username": ',"object":{'}
    assert request.is_too_large
    with pytest.raises(AdmissionError, match="the object is not a pod"):
        request.pod()


@pytest.mark.parametrize("text", [b"", b"{", sent(object=None), b',"object":{', b'[,"object":{'])
def test_the_beginning_of_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(AdmissionError):
        wire.decode_beginning(text)


@pytest.mark.parametrize(
    ("size", "is_large", "is_too_large"),
    [
        (wire.MOST_INLINE_BYTES, False, False),
        (wire.MOST_INLINE_BYTES + 1, True, False),
        (wire.MOST_POD_BYTES, True, False),
        (wire.MOST_POD_BYTES + 1, True, True),
    ],
)
@pytest.mark.parametrize("field", ["object", "oldObject"])
def test_a_request_is_as_large_as_the_larger_of_its_objects(
    field: str, size: int, *, is_large: bool, is_too_large: bool
) -> None:
    fields = {"object": {"metadata": {}}, field: {"x": "x" * (size - len('{"x":""}'))}}
    request = wire.decode(sent(**fields))
    assert (request.is_large, request.is_too_large) == (is_large, is_too_large)


async def test_work_is_done_in_another_thread() -> None:
    assert (
        await LargePods(seconds=PATIENCE_SECONDS).run("shop", threading.get_ident)
        != threading.get_ident()
    )


async def test_what_the_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        await LargePods(seconds=PATIENCE_SECONDS).run("shop", fail)


async def test_beyond_the_limit_no_pod_waits_and_afterwards_there_is_room_again() -> None:
    large_pods, go = LargePods(most_waiting=2, seconds=PATIENCE_SECONDS), threading.Event()
    waiting = [asyncio.create_task(large_pods.run("shop", go.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LargePodsError, match="too many"):
        await large_pods.run("shop", go.wait)
    go.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await large_pods.run("shop", lambda: "done") == "done"


async def test_large_pods_of_one_namespace_keep_none_of_another_out() -> None:
    large_pods, go = LargePods(most_waiting=2, seconds=PATIENCE_SECONDS), threading.Event()
    waiting = [asyncio.create_task(large_pods.run(at, go.wait)) for at in ("shop", "shop", "bank")]
    await asyncio.sleep(0)
    for namespace in ("shop", "bank"):
        with pytest.raises(LargePodsError, match="too many"):
            await large_pods.run(namespace, go.wait)
    go.set()
    assert await asyncio.gather(*waiting) == [True, True, True]


async def test_a_pod_that_was_given_up_counts_until_the_thread_has_left_it() -> None:
    large_pods, go = LargePods(most_waiting=1, seconds=0.001), threading.Event()
    with pytest.raises(LargePodsError, match="no time"):
        await large_pods.run("shop", go.wait)
    with pytest.raises(LargePodsError, match="too many"):
        await large_pods.run("shop", go.wait)
    go.set()
    while True:
        try:
            assert await large_pods.run("shop", lambda: "done") == "done"
        except LargePodsError:
            await asyncio.sleep(0)  # the thread has yet to say so
        else:
            break
