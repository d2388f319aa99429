from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import api
from engine.model.decision import ADVICE_ANNOTATION, advice_in
from engine.model.kinds import KINDS, Kind
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.node import IMPLICIT_DOMAIN
from engine.pipeline import decide
from engine.policy import PolicySet, load_policies
from engine.report import decision_report
from engine.view import ClusterView
from tests.engine.view_facts import facts
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.recording import (
    CLUSTER,
    PLURALS,
    fill,
    node,
    obj,
    pod,
    snapshot_of,
    state_of,
)
from tests.webhook.cluster.snapshot.kinds import KINDS_BY_NAME
from webhook.cli.pods import placement_request
from webhook.cluster import load_recorded
from webhook.cluster.client.connection import ApiError
from webhook.cluster.snapshot import (
    PUBLIC_KEYS,
    PUBLIC_VALUES,
    READ_ANNOTATIONS,
    Anonymizer,
    SnapshotError,
    redact,
)

POD_ANNOTATIONS = KINDS_BY_NAME["", "Pod"].snapshot_annotations or frozenset()
SECRET = b"the same in every run"
NAMES = st.text("qxz", min_size=12, max_size=14)  # no word of ours is likely to contain one
KEYS = (
    NAMES
    | st.builds("{}/{}".format, NAMES, NAMES)
    | st.sampled_from(sorted(PUBLIC_KEYS - PUBLIC_VALUES))
)
FIGURES = st.sampled_from(["1", "250m", "1.5Gi", "90%", "5m0s", "1e3", "0.5"])
NOTES = st.recursive(
    NAMES | FIGURES | st.integers(0, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
).map(lambda value: msgspec.json.encode(value).decode())
ANNOTATIONS = st.dictionaries(
    st.sampled_from(sorted(READ_ANNOTATIONS | POD_ANNOTATIONS)) | KEYS, NOTES | NAMES, max_size=3
)


def values(declared: Any, name: str = "") -> st.SearchStrategy[Any]:  # noqa: ANN401 (a type)
    """Return values of a type that a field of a wire struct is declared with."""
    if name == "annotations":
        return ANNOTATIONS
    if declared == api.ResourceList | None:
        return st.dictionaries(KEYS, FIGURES | NAMES | st.integers(0, 9), max_size=2)
    if isinstance(declared, types.UnionType):
        return st.one_of([values(one) for one in typing.get_args(declared)])
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is list:
        return st.lists(values(arguments[0]), max_size=2)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(KEYS, values(arguments[1]), max_size=2)
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        return objects(declared)
    return {
        str: NAMES,
        int: st.integers(0, 9),
        float: st.floats(0, 9),
        bool: st.booleans(),
        datetime: st.just(datetime(2026, 1, 1, tzinfo=UTC)),
        type(None): st.none(),
    }[declared]


@cache
def objects(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return objects of a wire struct in which every field may hold a name."""
    parts = {field.name: values(field.type, field.name) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **parts)


def texts(value: object) -> set[str]:
    """Return all texts and keys in an object."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set(value) | texts(list(value.values()))
    return {text for inner in value for text in texts(inner)} if isinstance(value, list) else set()


def names_in(wire: msgspec.Struct) -> set[str]:
    """Return the names that `NAMES` gave an object."""
    return {
        part
        for text in texts(msgspec.to_builtins(wire))
        for part in text.split("/")
        if len(part) >= 12 and set(part) <= set("qxz")
    }


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if not kind.only_for_policies],  # which no anonymous snapshot has
    ids=lambda kind: kind.kind,
)
@settings(max_examples=25)
@given(data=st.data())
def test_no_name_survives_in_any_field_of_any_kind(kind: Kind, data: st.DataObject) -> None:
    wire = redact(kind, data.draw(objects(kind.wire)))
    written = msgspec.json.encode(Anonymizer(SECRET).struct(wire)).decode()
    assert [name for name in names_in(wire) if name in written] == []
    msgspec.json.decode(written, type=kind.wire)


@given(NAMES, NAMES)
def test_equal_texts_are_equal_words_and_others_are_not(one: str, other: str) -> None:
    anonymizer = Anonymizer(SECRET)
    assert (anonymizer.pseudonym(one) == anonymizer.pseudonym(other)) is (one == other)


def test_two_runs_have_nothing_in_common() -> None:
    assert Anonymizer().pseudonym("shop") != Anonymizer().pseudonym("shop")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("acme.example/rack", r"[a-z2-7]{16}/[a-z2-7]{16}"),
        ("rack", r"[a-z2-7]{16}"),
        ("node-role.kubernetes.io/payroll", r"[a-z2-7]{16}\.kubernetes\.io/[a-z2-7]{16}"),
        ("kubernetes.io/payroll", r"kubernetes\.io/[a-z2-7]{16}"),
        ("notkubernetes.io/payroll", r"[a-z2-7]{16}/[a-z2-7]{16}"),
        ("node-role.kubernetes.io/control-plane", r"node-role\.kubernetes\.io/control-plane"),
        ("nvidia.com/gpu", r"nvidia\.com/gpu"),
        ("hugepages-2Mi", r"hugepages-2Mi"),
    ],
)
def test_a_key_keeps_its_form_and_a_public_one_itself(text: str, form: str) -> None:
    assert re.fullmatch(form, Anonymizer().key(text))


def test_public_labels_keep_their_values_and_names_keep_what_they_refer_to() -> None:
    anonymizer = Anonymizer()
    labels = {
        "topology.kubernetes.io/zone": "eu-west-1a",
        "kubernetes.io/hostname": "node-1",
        "app": "node-1",
    }
    node = anonymizer.struct(api.Node(metadata=api.ObjectMeta(name="node-1", labels=labels)))
    assert node.metadata.labels == {
        "topology.kubernetes.io/zone": "eu-west-1a",
        "kubernetes.io/hostname": node.metadata.name,
        "app": node.metadata.name,
    }
    field = api.SelectorRequirement(key="metadata.name", operator="In", values=["node-1"])
    zones = api.SelectorRequirement(
        key="topology.kubernetes.io/zone", operator="NotIn", values=["eu-west-1a"]
    )
    terms = [api.NodeSelectorTerm(match_fields=[field], match_expressions=[zones])]
    selector = anonymizer.struct(api.NodeSelector(node_selector_terms=terms))
    assert selector.node_selector_terms is not None
    term = selector.node_selector_terms[0]
    assert term.match_fields == [msgspec.structs.replace(field, values=[node.metadata.name])]
    assert term.match_expressions == [zones]


def test_a_toleration_still_tolerates_its_taint() -> None:
    anonymizer = Anonymizer()
    taint = anonymizer.struct(api.Taint(key="team", value="payroll", effect="NoSchedule"))
    toleration = anonymizer.struct(api.Toleration(key="team", value="payroll"))
    assert (taint.key, taint.value) == (toleration.key, toleration.value)
    assert taint.effect == "NoSchedule"
    anyone = api.Toleration(operator="Exists")
    assert anonymizer.struct(anyone) == anyone


def test_affinity_between_pods_still_names_labels_of_pods_and_of_nodes() -> None:
    anonymizer = Anonymizer()
    labels = {"acme.example/hall": "h1", "team": "payroll"}
    meta = anonymizer.struct(api.ObjectMeta(namespace="shop", labels=labels))
    term = anonymizer.struct(
        api.PodAffinityTerm(
            label_selector=api.LabelSelector(match_labels={"team": "payroll"}),
            namespaces=["shop"],
            topology_key="acme.example/hall",
            match_label_keys=["team"],
        )
    )
    assert meta.labels is not None
    assert list(meta.labels) == [term.topology_key, *(term.match_label_keys or ())]
    assert term.namespaces == [meta.namespace]
    assert term.label_selector is not None
    key = anonymizer.key("team")
    assert term.label_selector.match_labels == {key: meta.labels[key]}
    port = anonymizer.struct(api.ContainerPort(host_ip="10.1.2.3", host_port=80, protocol="UDP"))
    assert (port.host_port, port.protocol) == (80, "UDP")
    assert port.host_ip == anonymizer.pseudonym("10.1.2.3")
    constraint = api.TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname", when_unsatisfiable="DoNotSchedule"
    )
    assert anonymizer.struct(constraint) == constraint


def test_an_image_without_a_tag_is_still_the_latest_one_on_a_node() -> None:
    anonymizer = Anonymizer()
    container = anonymizer.struct(api.Container(image="registry:5000/web"))
    names = ("registry:5000/web:latest", "registry:5000/web@sha256:12")
    image = anonymizer.struct(api.ContainerImage(names=names, size_bytes=7))
    latest, by_digest = image.names or ()
    assert container.image == latest != by_digest
    assert image.size_bytes == 7


def test_costs_are_still_between_the_zones_that_labels_name() -> None:
    costs = [api.DestinationCost(destination="zone-2", network_cost=5)]
    origins = [api.OriginCosts(origin="zone-1", cost_list=costs)]
    public = api.TopologyCosts(topology_key="topology.kubernetes.io/zone", origin_list=origins)
    anonymizer = Anonymizer()
    assert anonymizer.struct(public) == public
    own = anonymizer.struct(msgspec.structs.replace(public, topology_key="acme.example/hall"))
    assert own.topology_key == anonymizer.key("acme.example/hall")
    assert [origin.origin for origin in own.origin_list or ()] == [anonymizer.pseudonym("zone-1")]


def test_zones_of_a_node_keep_their_numbers_and_figures() -> None:
    free = api.ZoneResource(name="cpu", available="3500m")
    zone = api.Zone(name="node-1", type="Node", resources=[free])
    policy = api.Attribute(name="topologyManagerMaxNUMANodes", value="8")
    topology = api.NodeResourceTopology(
        topology_policies=["SingleNUMANodePodLevel"], attributes=[policy], zones=[zone]
    )
    assert Anonymizer().struct(topology) == topology


def test_a_class_of_devices_still_stands_for_the_resource_that_pods_request() -> None:
    anonymizer = Anonymizer(SECRET)
    spec = anonymizer.struct(api.DeviceClassSpec(extended_resource_name="acme.example/gpu"))
    assert spec.extended_resource_name == anonymizer.key("acme.example/gpu")
    assert anonymizer.key("deviceclass.resource.kubernetes.io/gpu").startswith(IMPLICIT_DOMAIN)


def test_figures_in_annotations_stay_by_resource() -> None:
    text = '{"usageThresholds":{"cpu":40,"acme.example/fpga":"payroll"},"note":"90%"}'
    annotations = {"scheduling.koordinator.sh/usage-thresholds": text, "note": "payroll"}
    anonymizer = Anonymizer()
    meta = anonymizer.struct(api.ObjectMeta(annotations=annotations))
    (told,) = (meta.annotations or {}).values()
    assert msgspec.json.decode(told) == {
        "usageThresholds": {
            "cpu": 40,
            anonymizer.key("acme.example/fpga"): anonymizer.pseudonym("payroll"),
        },
        anonymizer.key("note"): "90%",
    }


def test_advice_still_names_the_node() -> None:
    text = '{"policies":["payroll"],"nodes":["node-1"],"candidates":3,"id":"a"}'
    anonymizer = Anonymizer()
    meta = anonymizer.struct(api.ObjectMeta(annotations={ADVICE_ANNOTATION: text}))
    advice = advice_in(meta.annotations or {})
    assert advice is not None
    assert (advice.policies, advice.candidates) == ((), 3)
    assert advice.nodes == (anonymizer.pseudonym("node-1"),)


POLICIES = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: by-figures}
spec:
  filters:
    - plugin: LoadAware
    - name: not-crowded
      expression: "node.podCount < 3"
      message: crowded
  scores:
    - {plugin: LimitAware, weight: 3}
    - {plugin: LoadAware, weight: 2}
    - {plugin: NodeResourcesFit}
"""
INCOMING = {
    "metadata": {"name": "new", "namespace": "default"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3", "memory": "1Gi"}},
            }
        ],
        "tolerations": [{"operator": "Exists"}],
    },
}
NAMED = [
    "acme", "payroll", "shop", "web-", "alpha-", "beta-", "gamma-", "registry", "rack", "asset",
    "main", "waiting",
]  # fmt: skip


def decided(path: Path, policies: PolicySet) -> tuple[dict[str, tuple[int | float, ...]], set[str]]:
    """Return the scores of each candidate, raw and in all, and the nodes left out."""
    recording = load_recorded([path])
    assert recording.problems == ()
    recording.state.track_sums(policies.sum_profiles)
    view = recording.state.view()
    request = placement_request(INCOMING, namespace="default", view=view)
    report = decision_report(decide(request, policies, view, recording.recorded_at))
    assert report.errors == ()
    scores = {
        ranked.node: (ranked.total, *(score.raw for score in ranked.scores))
        for ranked in report.ranking
    }
    return scores, set(report.rejected)


async def test_decisions_are_the_same_but_for_names(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(POLICIES)
    policies = load_policies([tmp_path / "policies.yaml"])
    anonymizer = Anonymizer(SECRET)
    async with fake_api_server(without=()) as server:
        fill(server)
        outcomes = []
        for one in (None, anonymizer):
            path, _ = await snapshot_of(server, tmp_path, anonymizer=one)
            outcomes.append(decided(path, policies))
    named, anonymous = outcomes
    assert anonymous[0] == {anonymizer.pseudonym(name): scores for name, scores in named[0].items()}
    assert anonymous[1] == {anonymizer.pseudonym(name) for name in named[1]}
    assert len(set(named[0].values())) > 1
    # 2.5 cores, and 2.55 for the pod, are more than 30 % of 16.
    assert named[1] == {"gamma-node"}
    text = path.read_text()
    assert [name for name in NAMED if name in text] == []


UNREAD = ["a-copy-of-it-all", "a-manager", "hunter2", "PASSWORD", "a-machine", "a-note", '"done"']


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server(without=()) as running:
        yield running


def recorded(path: Path) -> ClusterView:
    recording = load_recorded([path])
    assert recording.problems == ()
    assert not recording.skipped
    return recording.state.view()


def objects_in(path: Path) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(path.read_bytes())["items"]
    return items


def without_copies(view: ClusterView) -> dict[str, Any]:
    """Return what a view says, but for the annotations of nodes that no snapshot keeps."""
    told: dict[str, Any] = facts(view)
    for one in told["nodes"].values():
        if one["node"] is not None:
            kept = {k: v for k, v in one["node"].annotations.items() if "last-applied" not in k}
            one["node"] = replace(one["node"], annotations=kept)
    return told


async def test_a_snapshot_loads_as_the_cluster_that_it_is_of(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    path, _ = await snapshot_of(server, tmp_path)
    assert without_copies(recorded(path)) == without_copies(state_of(server).view())
    view = recorded(path)
    assert view.nodes[view.rows["gamma-node"]] is not None
    assert view.assumed[view.rows["beta-node"]] == 1  # pod `waiting` was advised to go there


async def test_the_api_server_is_only_read_from_and_in_pages(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    await snapshot_of(server, tmp_path)
    assert {request.method for request in server.requests} == {"GET"}
    lists = [request for request in server.requests if request.path != "/version"]
    assert {request.query.get("limit") for request in lists} == {"2"}


async def test_what_no_rule_reads_is_not_in_the_file(server: FakeApiServer, tmp_path: Path) -> None:
    fill(server)
    path, taken = await snapshot_of(server, tmp_path)
    text = path.read_text()
    assert [found for found in UNREAD if found in text] == []
    assert (taken["pods"].objects, taken["pods"].finished) == (5, 1)


async def test_an_object_stands_on_a_line_of_its_own(server: FakeApiServer, tmp_path: Path) -> None:
    fill(server)
    path, _ = await snapshot_of(server, tmp_path)
    first, *lines, last = path.read_text().splitlines()
    assert (first, last) == ('{"apiVersion":"v1","kind":"List","items":[', "]}")
    assert [json.loads(line.removesuffix(",")) for line in lines] == objects_in(path)
    assert len(lines) == len(CLUSTER)  # without the pod that has finished, with the version


async def test_a_snapshot_counts_by_the_version_of_its_cluster(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    path, _ = await snapshot_of(server, tmp_path)
    assert recorded(path).kubernetes == KubernetesVersion(1, 35)
    server.play("GET", "/version", lambda _: {"gitVersion": "v1.37.2+acme1"})
    path, _ = await snapshot_of(server, tmp_path)
    assert recorded(path).kubernetes == KubernetesVersion(1, 37)
    assert "v1.37.2+acme1" in path.read_text()
    path, _ = await snapshot_of(server, tmp_path, anonymizer=Anonymizer())
    assert recorded(path).kubernetes == KubernetesVersion(1, 37)
    assert "acme1" not in path.read_text()  # who built it is not told


def test_a_recording_without_a_version_is_of_the_assumed_one(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("alpha")]}))
    assert recorded(path).kubernetes == ASSUMED


async def test_progress_is_told_kind_by_kind_with_what_is_to_come(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    told: list[tuple[str, int, int | None]] = []
    await snapshot_of(server, tmp_path, progress=lambda *one: told.append(one))
    assert [one for one in told if one[0] == "pods"] == [
        ("pods", 2, 6),
        ("pods", 4, 6),
        ("pods", 6, 6),
    ]
    assert [name for name, done, total in told if done == total] == list(PLURALS)


async def test_a_list_that_expired_on_the_way_is_read_again_from_its_beginning(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    expired: list[int] = []

    def expire(kind: str, done: int, _total: int | None) -> None:
        if kind == "pods" and done == 4 and not expired:
            expired.append(done)
            server.delete("pods", "shop", "web-one")  # which is in the file by now
            server.expire_continue()

    path, taken = await snapshot_of(server, tmp_path, progress=expire)
    assert expired
    pods = [one["metadata"]["name"] for one in objects_in(path) if one["kind"] == "Pod"]
    assert pods == ["waiting", "web-four", "web-three", "web-two"]
    assert taken["pods"].objects == 4
    assert without_copies(recorded(path)) == without_copies(state_of(server).view())


async def test_a_list_that_expires_for_ever_is_given_up(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    with pytest.raises(SnapshotError, match="continue token is too old"):
        await snapshot_of(server, tmp_path, progress=lambda *_: server.expire_continue())


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_what_passes_is_tried_again(
    server: FakeApiServer, tmp_path: Path, status: int
) -> None:
    fill(server)
    server.fail_next(3, status, path_prefix="/api/v1/pods")
    path, taken = await snapshot_of(server, tmp_path)
    assert taken["pods"].error is None
    assert without_copies(recorded(path)) == without_copies(state_of(server).view())


async def test_a_server_that_was_never_there_is_not_waited_for(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        pass
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with pytest.raises(SnapshotError) as caught:
        await snapshot_of(server, tmp_path, sleep=sleep)
    assert waits == []
    assert caught.value.error.status == 0


async def test_what_is_absent_or_forbidden_is_told_and_the_rest_written(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    server.uninstall("nodemetrics.slo.koordinator.sh")
    server.fail_next(1, 403, path_prefix="/api/v1/namespaces")
    server.fail_next(5, 503, path_prefix="/apis/metrics.k8s.io/v1beta1/pods")
    path, taken = await snapshot_of(server, tmp_path)
    errors = {name: one.error.status for name, one in taken.items() if one.error}
    assert {name: status for name, status in errors.items() if name in PLURALS} == {
        "namespaces": 403,
        "nodemetrics.slo.koordinator.sh": 404,
        "pods.metrics.k8s.io": 503,
    }
    assert load_recorded([path]).loaded == {
        "Node": 3,
        "Pod": 5,
        "ElasticQuota": 1,
        "NodeMetrics": 1,
    }


async def test_a_kind_that_fails_halfway_leaves_nothing_of_it(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    fill(server, [obj("Namespace", name) for name in ("third", "fourth", "fifth")])

    def forbid(kind: str, done: int, _total: int | None) -> None:
        if kind == "namespaces" and done == 2:
            server.fail_next(1, 403, path_prefix="/api/v1/namespaces")

    path, taken = await snapshot_of(server, tmp_path, progress=forbid)
    assert taken["namespaces"].error is not None
    assert taken["namespaces"].objects == 0
    assert "Namespace" not in load_recorded([path]).loaded


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_without_nodes_or_pods_there_is_no_snapshot(
    server: FakeApiServer, tmp_path: Path, kind: str
) -> None:
    fill(server)
    server.fail_next(1, 403, path_prefix=f"/api/v1/{kind}")
    with pytest.raises(SnapshotError) as caught:
        await snapshot_of(server, tmp_path)
    assert (caught.value.kind, caught.value.error.status) == (kind, 403)
    assert not any(tmp_path.glob("*cluster.json*"))  # noqa: ASYNC240 - nothing else runs


async def test_an_object_that_cannot_be_read_is_left_out_and_told(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server, [node("good"), pod("web", "good")])
    fill(server, [obj("ElasticQuota", "odd", "shop", spec={"max": "lots"})])
    path, taken = await snapshot_of(server, tmp_path)
    odd = taken["elasticquotas.scheduling.x-k8s.io"]
    assert (odd.objects, odd.unreadable) == (0, 1)
    (problem,) = odd.problems
    assert str(problem) == (
        "elasticquotas.scheduling.x-k8s.io: spec.max: expected an object, got a text\n"
        "hint: ElasticQuota `shop/odd` is left out"
    )
    assert load_recorded([path]).loaded == {"Node": 1, "Pod": 1}


async def test_credentials_that_are_not_accepted_end_it(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    server.fail_next(9, 401, path_prefix="/api/v1/namespaces")
    with pytest.raises(SnapshotError) as caught:
        await snapshot_of(server, tmp_path)
    assert isinstance(caught.value.__cause__, ApiError)
    assert caught.value.error.status == 401


POD = KINDS_BY_NAME["", "Pod"]
RECORD_REDACTION_POD_ANNOTATIONS = POD.snapshot_annotations or frozenset()
COPY = "kubectl.kubernetes.io/last-applied-configuration"


def test_of_a_pod_only_the_annotations_that_count_are_kept() -> None:
    texts = dict.fromkeys([*RECORD_REDACTION_POD_ANNOTATIONS, COPY, "note"], "1")
    pod = redact(POD, api.Pod(metadata=api.ObjectMeta(name="web", annotations=texts)))
    assert isinstance(pod, api.Pod)
    assert set(pod.metadata.annotations or ()) == RECORD_REDACTION_POD_ANNOTATIONS


def test_of_a_node_all_annotations_are_kept_but_copies_and_command_lines() -> None:
    texts = dict.fromkeys([COPY, "k3s.io/node-args", "k3s.io/node-env", "rack"], "1")
    node = redact(
        KINDS_BY_NAME["", "Node"],
        api.Node(metadata=api.ObjectMeta(name="node1", annotations=texts)),
    )
    assert isinstance(node, api.Node)
    assert node.metadata.annotations == {"rack": "1"}


def test_of_a_report_only_the_name_and_the_figures_are_kept() -> None:
    meta = api.ObjectMeta(name="node1", labels={"zone": "a"}, uid="u")
    report = api.NodeMetric(metadata=meta, status=api.NodeMetricStatus(pods_metric=[]))
    assert redact(KINDS_BY_NAME["slo.koordinator.sh", "NodeMetric"], report) == api.NodeMetric(
        metadata=api.ObjectMeta(name="node1"), status=report.status
    )
