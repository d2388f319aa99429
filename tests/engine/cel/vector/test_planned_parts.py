from __future__ import annotations

import pytest

from engine.cel.values import BOOL, DOUBLE, INT, CelType
from engine.cel.vector.plan import Part, part_of
from tests.engine.cel.vector.rows_table import ENVIRONMENT, RowsLayout, resolved

_LAYOUT = RowsLayout([{"labels": {"a": "x"}, "i": 1, "d": 0.5, "flag": True, "tags": ["t"]}])


def _part(expression: str) -> Part:
    return part_of(resolved(expression), _LAYOUT, ENVIRONMENT)


def _paths(expression: str) -> list[str]:
    return [".".join(path) for path in _part(expression).paths()]


@pytest.mark.parametrize(
    ("expression", "paths"),
    [
        ("node.labels.a == pod.x", ["node.labels.a"]),
        ("node['labels']['a'].size()", ["node.labels.a"]),
        ("node.labels[?'a'].orValue('')", ["node.labels.a"]),
        ("node.?labels.a.hasValue()", ["node.labels.a"]),
        ("has(node.labels.a) && 'b' in node.labels", ["node.labels.a", "node.labels.b"]),
        ("node.labels.a.b.c", ["node.labels.a"]),  # as far as a table goes
        ("node.labels[pod.x]", ["node.labels"]),
        ("node.labels.a + string(size(node.labels))", ["node.labels"]),  # the map holds the label
        ("node.tags[0]", ["node.tags"]),
        ("node.i > 0 ? node.d : 0.5", ["node.d", "node.i"]),
        ("node", ["node"]),
        ("node.labels == node", ["node"]),
        ("pod.labels.a", []),
    ],
)
def test_a_part_reads_what_it_follows_from_a_row(expression: str, paths: list[str]) -> None:
    assert _paths(expression) == paths


@pytest.mark.parametrize(
    ("expression", "request_", "constant"),
    [
        ("1 + 2", False, True),
        ("pod.x", True, True),
        ("pod.xs.all(x, x > 1)", True, True),
        ("node.i", False, False),
        ("node.tags.all(x, x == 'a')", False, False),
        ("node.i > pod.x", True, False),
        ("pod.xs.all(x, x > node.i)", True, False),
    ],
)
def test_a_part_is_known_by_what_it_depends_on(
    expression: str, *, request_: bool, constant: bool
) -> None:
    part = _part(expression)
    assert (part.request, part.constant) == (request_, constant)


def test_a_part_in_a_loop_is_no_constant_while_it_reads_the_variable() -> None:
    loop = _part("pod.xs.all(x, x > pod.y && node.flag)")
    predicate = loop.below[1]
    comparison = predicate.below[0]
    assert comparison.free == {"x@0"}
    assert not comparison.constant
    assert comparison.below[1].constant
    assert loop.free == frozenset()


@pytest.mark.parametrize(
    ("expression", "of_type"),
    [
        ("node.i", INT),
        ("node.d", DOUBLE),
        ("node.flag", BOOL),
        ("node.labels.a", None),
        ("node.labels.a == 'x'", BOOL),
        ("node.i + pod.x", INT),  # or it fails
        ("pod.x + pod.y", None),
        ("node.i + node.d", None),
        ("-node.d", DOUBLE),
        ("node.flag ? node.i : pod.x", INT),
        ("node.flag ? node.i : 0.5", None),
        ("int(node.labels.a)", INT),
        ("size(node.tags)", INT),
        ("node.tags.size()", INT),
        ("node.labels.a.startsWith('x')", BOOL),
        ("math.greatest(node.d, pod.x)", DOUBLE),
        ("math.greatest(node.i, node.d)", None),
        ("math.abs(node.i)", INT),
        ("node.labels.a.split('-')", None),
        ("node.labels[?'a'].orValue(1)", None),
    ],
)
def test_a_type_is_known_if_it_is_certain(expression: str, of_type: CelType | None) -> None:
    assert _part(expression).type == of_type
