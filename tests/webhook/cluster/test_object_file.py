from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from engine.documents.places import DEEPEST
from engine.errors import Diagnostic, InvalidFileError
from engine.model import api
from webhook.cluster import load_recorded
from webhook.cluster.object_file import (
    YamlObject,
    object_file,
    read_json,
    read_object_file,
    read_yaml,
)

UNREADABLE = {
    b'{"kind": "List", "items": [': "not JSON: input data was truncated",
    b'{"kind": "List"} {}': "not JSON: trailing characters",
    b'{"kind": {}}': "expected an object of Kubernetes: expected a text, got an object",
    b'{"kind": "List", "items": 5}': (
        "expected an object of Kubernetes: expected a list, got a whole number"
    ),
    b'{"items": []}': "not an object of Kubernetes: it has no `kind`",
    b'{"kind": "\xff"}': "not JSON: not valid UTF-8",
    b'{"spec": ' + b"[" * 10_000: "not JSON: nested too deeply",
}


@pytest.mark.parametrize(("data", "told"), UNREADABLE.items())
def test_what_cannot_be_read_at_all_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(InvalidFileError) as caught:
        list(read_json(data, "f.json"))
    (problem,) = caught.value.problems
    assert problem.message == told


def test_where_reading_ended_is_told() -> None:
    with pytest.raises(InvalidFileError) as caught:
        list(read_json(b'{"kind": "List",\n "items": [1 2]}', "f.json"))
    # In the second line, at its 14th character, the 2.
    assert str(caught.value) == "f.json:2:14: not JSON: expected ',' or ']'"


def test_items_of_a_typed_list_are_of_its_kind() -> None:
    data = b'{"kind": "PodList", "apiVersion": "v1", "items": [{}, {}]}'
    assert [(found.group, found.kind) for found in read_json(data, "f.json")] == [("", "Pod")] * 2


def test_what_is_no_list_is_one_object() -> None:
    data = b'{"kind": "NodeMetric", "apiVersion": "slo.koordinator.sh/v1alpha1"}'
    (found,) = read_json(data, "f.json")
    assert (found.group, found.kind) == ("slo.koordinator.sh", "NodeMetric")


NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: good}\n"


def found_in(text: str) -> list[YamlObject]:
    objects = []
    for found in read_yaml(text, "f.yaml"):
        assert isinstance(found, YamlObject), found
        objects.append(found)
    return objects


def told_of(text: str) -> list[str]:
    """Return the kinds that are found and the mistakes that are told, in their order."""
    return [
        found.message if isinstance(found, Diagnostic) else found.kind
        for found in read_yaml(text, "f.yaml")
    ]


def refusal(text: str) -> str:
    with pytest.raises(InvalidFileError) as caught:
        list(read_yaml(text, "f.yaml"))
    return caught.value.problems[-1].message


def test_times_need_no_quotes() -> None:
    (found,) = found_in(NODE.replace("{name: good}", "{creationTimestamp: 2026-01-01T00:00:00Z}"))
    assert found.decode(api.Node).metadata.creation_timestamp is not None


def test_words_that_yaml_may_take_for_something_else_stay_texts() -> None:
    (found,) = found_in(NODE + "spec:\n  taints: [{key: on, value: no, effect: 0x10}]\n")
    taints = found.decode(api.Node).spec.taints
    assert taints == [api.Taint(key="on", value="no", effect="0x10")]


def test_anchors_are_followed_across_items() -> None:
    text = """
kind: List
items:
- kind: Node
  metadata: &meta {name: a}
- kind: Node
  metadata: *meta
"""
    names = [found.decode(api.Node).metadata.name for found in found_in(text)]
    assert names == ["a", "a"]


def test_a_bomb_of_aliases_spoils_only_its_object() -> None:
    levels = [f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    bomb = "kind: Pod\nmetadata:\n  l0: &l0 [x]\n" + "\n".join(levels)
    assert told_of(f"{bomb}\n---\n{NODE}") == [
        "the document is too large with its aliases written out",
        "Node",
    ]


def test_a_key_that_stands_twice_spoils_only_its_object() -> None:
    text = "kind: List\nitems:\n- {kind: Node, kind: Pod}\n- {kind: Node}\n"
    assert told_of(text) == ["duplicate key `kind`: the first one is on line 3", "Node"]


def test_a_tag_spoils_only_its_object() -> None:
    assert told_of(f"kind: !!python/none Pod\n---\n{NODE}") == [
        "YAML tags are not supported",
        "Node",
    ]


def test_documents_with_nothing_in_them_are_passed_over() -> None:
    assert told_of(f"---\n# a comment\n---\n{NODE}---\n") == ["Node"]


def test_deep_nesting_is_refused() -> None:
    assert refusal("kind: " + "[" * 100_000) == f"nested deeper than {DEEPEST} levels"


def test_a_file_that_ends_too_early_is_refused() -> None:
    assert refusal("kind: List\nitems:\n- {kind: Node,").startswith("not YAML:")


@pytest.mark.parametrize("text", ["just words", "- kind: Node", "5"])
def test_a_document_that_is_no_object_is_refused(text: str) -> None:
    assert refusal(text) == "expected an object of Kubernetes"


def test_an_object_without_a_kind_is_refused() -> None:
    assert refusal("metadata: {}") == "not an object of Kubernetes: it has no `kind`"
    assert refusal("{}") == "not an object of Kubernetes: it has no `kind`"


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a: !x 1\n", "a:\n  <<: {}\n"])
def test_without_a_kind_other_mistakes_do_not_matter(text: str) -> None:
    assert refusal(text) == "not an object of Kubernetes: it has no `kind`"


def test_a_list_is_refused_where_it_begins() -> None:
    assert refusal("# no cluster\n- a: !x {b: }}\n") == "expected an object of Kubernetes"


def test_items_that_are_no_objects_do_not_wait_for_the_kind_of_their_list() -> None:
    found = read_yaml("items:\n- 5\n- {metadata: {}}\nkind: NodeList\n", "f.yaml")
    kinds = [one.kind for one in found if isinstance(one, YamlObject)]
    assert kinds == ["", "Node"]


def test_a_large_text_without_a_kind_is_not_read() -> None:
    # It is not even YAML, which only reading it would tell.
    text = "\n# values of a chart\n" + "key: [1, 2]\n" * 40_000 + "}"
    with pytest.raises(InvalidFileError) as caught:
        list(read_yaml(text, "f.yaml"))
    (problem,) = caught.value.problems
    assert str(problem) == (
        "f.yaml:2:1: not an object of Kubernetes: it has no `kind`\n"
        " | # values of a chart\n"
        " | ^\n"
        "hint: `kubectl get -o yaml` writes objects, each with `apiVersion` and `kind`"
    )


def test_an_object_that_is_longer_than_any_of_the_api_is_refused_where_it_is_too_long() -> None:
    entry = f"  key: {'x' * 1_000}\n"
    text = f"{NODE}---\nkind: Values\n" + "".join(
        f"entry{number}:\n{entry}" for number in range(5_000)
    )
    found = read_yaml(text + "}", "f.yaml")
    assert isinstance(next(found), YamlObject)
    with pytest.raises(InvalidFileError) as caught:
        next(found)
    (problem,) = caught.value.problems
    assert problem.message == "too long for one object"
    assert 8_000 < problem.line < 9_000


def test_a_list_may_be_longer_than_an_object() -> None:
    item = f"- kind: Node\n  metadata: {{name: {'x' * 1_000}}}\n"
    assert len(found_in("items:\n" + item * 5_000 + "kind: List\n")) == 5_000


OBJECT_FILE_NODE = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-a"}}'
QUOTA = b'{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"ElasticQuota","metadata":{}}'


def test_what_was_taken_back_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    with object_file(path) as file:
        begin = file.size
        file.add(b'{"kind":"Pod"}')
        file.truncate(begin)
        file.add(b'{"kind":"Node"}')
        kept = file.size
        file.add(b'{"kind":"Secret"}')
        file.truncate(kept)
        file.add(b'{"kind":"Namespace"}')
    assert [one["kind"] for one in json.loads(path.read_bytes())["items"]] == ["Node", "Namespace"]


def test_a_file_without_objects_is_a_list(tmp_path: Path) -> None:
    with object_file(tmp_path / "objects.json"):
        pass
    assert json.loads((tmp_path / "objects.json").read_bytes())["items"] == []


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text("old")
    with object_file(path) as file:
        file.add(b"{}")
        assert path.read_text() == "old"
    assert path.read_text() != "old"
    whole = path.read_bytes()

    def fail() -> None:
        with object_file(path) as file:
            file.add(b"{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]


def written(path: Path, *objects: bytes) -> Path:
    with object_file(path) as file:
        for each in objects:
            file.add(each)
    return path


def test_what_was_written_is_read_object_by_object(tmp_path: Path) -> None:
    objects = list(
        read_object_file(written(tmp_path / "objects.json", OBJECT_FILE_NODE, QUOTA)) or ()
    )
    assert [(found.group, found.kind, bytes(found.raw)) for found in objects] == [
        ("", "Node", OBJECT_FILE_NODE),
        ("scheduling.x-k8s.io", "ElasticQuota", QUOTA),
    ]
    assert [found.problem(("spec",), "it is wrong", "").message for found in objects] == [
        "items[0].spec: it is wrong",
        "items[1].spec: it is wrong",
    ]
    assert list(read_object_file(written(tmp_path / "none.json")) or ()) == []


HEAD = b'{"apiVersion":"v1","kind":"List","items":['


@pytest.mark.parametrize(
    "content",
    [
        HEAD + b"]}",
        HEAD + b"\n" + OBJECT_FILE_NODE,  # cut
        HEAD + b"\n" + OBJECT_FILE_NODE + b",\n]}\n",
        HEAD + b"\n" + OBJECT_FILE_NODE + b"\n" + OBJECT_FILE_NODE + b"\n]}\n",
        HEAD + b"\n" + OBJECT_FILE_NODE[:-1] + b',\n"spec":{}}\n]}\n',
        HEAD + b'\n{"kind":"Node","images":[{},\n{}]},\n' + OBJECT_FILE_NODE + b"\n]}\n",
        HEAD + b"\n" + OBJECT_FILE_NODE + b"\n]}\n" + OBJECT_FILE_NODE,
        b'{"apiVersion":"v1","items":[\n' + OBJECT_FILE_NODE + b'\n],"kind":"List"}',
        b"kind: Node\n",
        b"",
    ],
)
def test_a_file_of_another_form_is_left_to_others(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "objects.json"
    path.write_bytes(content)
    assert read_object_file(path) is None


def test_a_list_that_somebody_has_edited_is_read_all_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "objects.json", OBJECT_FILE_NODE, QUOTA)
    path.write_bytes(path.read_bytes().replace(b'"metadata":{"name"', b'\n"metadata":{"name"'))
    assert load_recorded([path]).loaded == {"Node": 1}


def test_a_recording_takes_the_memory_of_one_object_beside_the_cluster(tmp_path: Path) -> None:
    # 200 objects of 64 KiB that no rule reads: 12.5 MiB
    secret = b'{"apiVersion":"v1","kind":"Secret","data":"%b"}' % (b"x" * 2**16)
    path = written(tmp_path / "objects.json", OBJECT_FILE_NODE, *[secret] * 200)
    load_recorded([path])  # what is imported and cached by it does not count
    tracemalloc.start()
    try:
        recording = load_recorded([path])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recording.skipped == {"Secret": 200}
    assert most < 2**20
