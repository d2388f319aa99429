from __future__ import annotations

import pytest

from engine.cel import CelError, Environment, Limits, compile_node, compile_program, new_frame
from engine.cel.ast import Binary, Local, walk
from engine.cel.values import DYN, BoolKey, UInt

ENVIRONMENT = Environment(variables={"m": DYN, "l": DYN}, limits=Limits(nesting=3))


def evaluate(source: str, **activation: object) -> object:
    return compile_program(source, ENVIRONMENT).evaluate(activation)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[1, 2, 3].filter(x, x > 1)", [2, 3]),
        ("[1, 2, 3].map(x, x > 1, x * x)", [4, 9]),
        ("[5, 6].transformList(i, v, i + v)", [5, 7]),
        ("[5, 6].transformList(i, v, i > 0, v)", [6]),
        ("[5, 6].transformMap(i, v, v * v)", {0: 25, 1: 36}),
        ("[5, 6].transformMapEntry(i, v, {v: i})", {5: 0, 6: 1}),
        ("[[1, 2], [3]].map(x, x.map(y, y + size(x)))", [[3, 4], [4]]),
        ("[1].map(x, [2].map(x, x))", [[2]]),
        ("[1, 2].map(x, [x].exists(x, x == 2) ? x : 0)", [0, 2]),
        ("['b', 'a', 'c'].sortBy(x, x)", ["a", "b", "c"]),
        ("[3, 1, 2].sortBy(x, -x)", [3, 2, 1]),
        ("cel.bind(x, 2, x + cel.bind(y, 3, x * y))", 8),
        ("[1, 2].map(x, cel.bind(x, x + 1, x))", [2, 3]),
        ("optional.of(2).optMap(x, x + 1).value()", 3),
        ("optional.of(2).optFlatMap(x, optional.none()).hasValue()", False),
        ("[1, 2, 2].exists_one(x, x == 2)", False),
        ("[1, 2, 3].existsOne(i, v, v == 2)", True),
    ],
)
def test_macros(source: str, value: object) -> None:
    assert evaluate(source) == value


def test_a_loop_over_a_map_goes_through_its_keys() -> None:
    m = {"a": 1, BoolKey.TRUE: 2, UInt(3): 4}
    assert evaluate("m.map(k, k)", m=m) == ["a", True, 3]
    assert evaluate("m.transformMap(k, v, v + 1)", m=m) == {"a": 2, BoolKey.TRUE: 3, 3: 5}


@pytest.mark.parametrize(
    "source",
    [
        "m.all(x, true)",
        "l.transformMapEntry(i, v, {'same': v})",
        "l.transformMapEntry(i, v, dyn(v))",
        "{'a': 1}.transformMap(k, v, 1 / 0)",
        "dyn({}).sortBy(x, x)",
        "l.sortBy(x, x == 1 ? dyn('a') : x)",
        "dyn(1).optMap(x, x)",
        "optional.of(1).optFlatMap(x, dyn(x))",
    ],
)
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source, m="not a map", l=[1, 2])


def test_a_node_inside_a_loop_compiles_on_its_own() -> None:
    root = compile_program("l.map(x, x + 1)", ENVIRONMENT).root
    (inner,) = (node for node, _ in walk(root) if isinstance(node, Binary))
    (local,) = (node for node, _ in walk(inner) if isinstance(node, Local))
    assert compile_node(inner, ENVIRONMENT)(new_frame({local.name: 41})) == 42
