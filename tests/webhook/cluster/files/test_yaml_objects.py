from __future__ import annotations

import pytest

from engine.documents.yaml_tree import DEEPEST
from engine.errors import Diagnostic, InvalidFileError
from engine.model import api
from webhook.cluster.files.yaml_objects import YamlObject, read_yaml

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
