"""Random expressions and the random rows they are evaluated on."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from engine.cel.values import TIMESTAMP_MAX, TIMESTAMP_MIN, Timestamp
from tests.engine.cel.vector.rows_table import Row

_INTS = [0, 1, -1, 3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1]
_DOUBLES = [0.0, -0.0, 0.5, 1.0, -2.5, 3.0, 9007199254740992.0, 9.3e18, 1e308, float("inf")]
_DOUBLES += [float("-inf"), float("nan")]
_MIXED = st.sampled_from(["", "a", "b", "1", 1, 1.0, True, None, [1], {"k": 1}])


_MICRO = 1000
_MOMENTS = st.sampled_from([0, 1, -1, 10**6, TIMESTAMP_MAX // _MICRO, TIMESTAMP_MIN // _MICRO]).map(
    lambda micros: Timestamp(micros * _MICRO)
)
"""Moments with the precision of columns."""


def _maps(values: st.SearchStrategy[object], *keys: str) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, values))


_ELEMENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["a", "b"]), "status": st.sampled_from(["a", "1"])},
    optional={"at": _MOMENTS, "odd": _MIXED},
)

ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.fixed_dictionaries(
        {
            "labels": _maps(st.sampled_from(["a", "b", "1", "é"]), "a", "b"),
            "i": st.sampled_from(_INTS),
            "d": st.sampled_from(_DOUBLES),
            "flag": st.booleans(),
            "list": st.lists(_ELEMENTS, max_size=3),
        },
        optional={
            "use": _maps(st.sampled_from(_DOUBLES), "d"),
            "count": _maps(st.sampled_from(_INTS), "i"),
            "odd": _MIXED,
            "sub": st.one_of(_MIXED, _maps(_MIXED, "a", "k")),
            "at": _MOMENTS,
            "tags": st.lists(st.sampled_from(["a", "b"]), max_size=3),
        },
    ),
    max_size=6,
)
"""Values of `node` by row: with mixed types, missing keys and numbers at the edges."""

PODS = st.fixed_dictionaries(
    {
        "d": st.sampled_from(_DOUBLES),
        "i": st.sampled_from(_INTS),
        "any": _MIXED,
        "now": _MOMENTS,
        "names": st.lists(st.sampled_from(["a", "b", "i", "d"]), max_size=3),
    }
)

# Expressions by the type that they mean to have. `<kind>` stands for an expression of the kind.
# fmt: off
_ENDS = {
    "any": [
        "node.odd", "node.sub.a", "node.sub.k", "node.sub.k.x", "node.labels", "node.use", "node",
        "node.missing", "pod.any", "pod.names", "pod.missing", "node[pod.names[0]]", "null", "2u",
        "18446744073709551615u", "[1, 1.0]", "{'a': 1}", "node.?sub[?'k'].orValue(1)",
    ],
    "text": [
        "node.labels.a", "node.labels['b']", "node.labels[?'a'].orValue('z')", "pod.names[0]",
        "'a'", "node.labels[pod.names[0]]", "'1'", "string(node.i)", "node.labels.a + pod.names[0]",
    ],
    "int": [
        "node.i", "node.i", "node.count.i", "pod.i", "0", "1", "-1", "9223372036854775807",
        "-9223372036854775808", "9007199254740993", "int(node.labels.a)", "size(node.tags)",
    ],
    "double": [
        "node.d", "node.d", "node.use.d", "pod.d", "0.0", "-0.0", "1.0", "0.5", "1e308",
        "9007199254740992.0", "node.?use.d.orValue(0.5)", "double(node.labels.a)",
    ],
    "bool": [
        "node.flag", "node.flag", "true", "false", "has(node.use)", "has(node.use.d)",
        "has(node.labels.a)", "has(node.sub.k)", "has(node.odd.x)", "has(node.sub.k.x)",
        "'a' in node.labels", "'d' in node.use", "'a' in node.odd", "'k' in node.sub",
        "node.sub.?a.hasValue()", "node.odd == pod.any", "node.labels.a == pod.names[0]",
    ],
    "predicate": [
        "x == 'a'", "x == node.labels.a", "x in node.labels", "x == pod.names[0]", "1 / 0 > x",
        "node.labels[x] == 'b'", "node[x] > 0", "pod.names.exists(y, y == x)", "node.d > pod.d",
    ],
    "order": ["==", "!=", "<", "<=", ">", ">="],
    "sign": ["+", "-", "*", "/"],
    "logic": ["&&", "||"],
    "moment": [
        "node.at", "node.at", "pod.now", "timestamp(1)",
        "timestamp('1970-01-01T00:00:00.000000001Z')",
        "node.?at.orValue(pod.now)", "timestamp(node.labels.a)",
    ],
    "span": ["duration('0')", "duration('1s')", "duration('-1500ms')", "duration('1ns')"],
    "member": [
        "c.type == 'a'", "c.status == pod.names[0]", "c.at < pod.now", "c.odd == 1", "1 / 0 > c.i",
        "pod.now - c.at <= duration('1s')", "has(c.at)", "c.status in node.labels", "node.i > c.i",
        "c.odd", "node.tags.exists(x, x == c.type)", "node.list.all(d, d.type == c.type)",
    ],
    "round": ["abs", "ceil", "floor", "round", "sqrt", "trunc", "sign"],
    "extreme": ["greatest", "least"],
    "number": ["node.i", "node.d"],
}


def _of_any_kind(kind: str) -> list[str]:
    return [
        f"(<bool> ? <{kind}> : <{kind}>)", f"cel.bind(z, <{kind}>, true ? z : <any>)",
        f"[<{kind}>, <any>][0]", f"{{'a': <{kind}>}}.a", "(<any>)",
    ]


_FORMS = {
    "any": ["<text>", "<number>", "<bool>", "<any>", *_of_any_kind("any")],
    "text": ["<text>", *_of_any_kind("text")],
    "number": ["<int>", "<double>"],
    "int": [
        "(<int> <sign> <int>)", "(<int> <sign> <int>)", "(<int> % <int>)", "-(<int>)",
        "math.<extreme>(<int>, <int>)", "int(<number>)", "int(<text>)", "math.abs(<int>)",
        "size(node.tags.filter(x, <predicate>))", "int(<moment>)", "(<span>).getHours()",
        "(<span>).getMilliseconds()", "(<span>).getSeconds()", "<int>", *_of_any_kind("int"),
    ],
    "double": [
        "(<double> <sign> <double>)", "(<double> <sign> <double>)", "-(<double>)",
        "double(<number>)", "double(<text>)", "math.<extreme>(<double>, <double>)",
        "math.<round>(<double>)", "math.<round>(<number>)", "<double>", *_of_any_kind("double"),
    ],
    "moment": ["(<moment> <sign> <span>)", "(<span> + <moment>)", "<moment>", "(<any>)"],
    "span": ["(<moment> - <moment>)", "(<span> <sign> <span>)", "-(<span>)", "<span>"],
    "member": ["(<member> <logic> <member>)", "!(<member>)", "<member>", "<bool>"],
    "bool": [
        "(<moment> <order> <moment>)", "(<span> <order> <span>)", "(<moment> <order> <any>)",
        "node.list.exists(c, <member>)", "node.list.all(c, <member>)",
        "node.list.exists_one(c, <member>)", "math.<extreme>(<span>, <span>) == <span>",
        "(<bool> <logic> <bool>)", "(<bool> <logic> (<bool> <logic> <bool>))", "!(<bool>)",
        "(<number> <order> <number>)", "(<number> <order> <number>)", "(<text> <order> <text>)",
        "(<bool> <order> <bool>)", "(<any>) in [<number>, <text>]", "(<any> <order> <any>)",
        "(<text>).startsWith(<text>)", "node.tags.all(x, <predicate>)",
        "node.tags.exists(x, <predicate>)", "pod.names.all(x, <predicate>)",
        "pod.names.exists_one(x, <predicate>)", "node.tags.exists(x, <bool>)", "<bool>",
        *_of_any_kind("bool"),
    ],
}
# fmt: on
_DEEPEST = 4
_PLACE = re.compile("<([a-z]+)>")


@st.composite
def _expressions(draw: st.DrawFn) -> str:
    """Draw an expression that mostly has the types that it means to have."""

    def expand(kind: str, depth: int) -> str:
        forms = _FORMS.get(kind, []) if depth < _DEEPEST else []
        form = draw(st.sampled_from(forms or _ENDS[kind]))
        return _PLACE.sub(lambda place: expand(place[1], depth + 1), form)

    return expand(draw(st.sampled_from(["bool", "bool", "number", "any"])), 0)


EXPRESSIONS = _expressions()
"""Expressions over `node`, a row, and `pod`."""
