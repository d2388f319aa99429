"""Our evaluator against Google's C++ engine on random expressions, well-typed and not.

Where the two are known to differ the expressions are not generated:
- texts of doubles, timestamps and durations follow Go, as in Kubernetes (`+Inf`, `1.5s`);
- texts that only one of them reads as a number (` 1`, `0x1p4`, `+1` as a uint) or a moment;
- `{1: a, 1u: b}` is an error in ours, as the conformance suite wants;
- `[?0u]` and `[?0.0]` on a list are accepted by ours, as `[0u]` is by both;
- `transformMap` and `transformMapEntry` fail at run time in the C++ binding;
- the order in which a loop goes through a map is open, so no map here has two entries;
- `cel.bind` beside a loop reads a stale value in the C++ engine, hence one example only;
- `int(true)` is 1 in the C++ engine, and no overload in the language;
- `math.greatest`, `math.least` and `sortBy` refuse literals of a wrong type while parsing, ours
  when they are evaluated;
- `indexOf` and others of lists are Kubernetes', which the witness lacks;
- the order of NaN in `sort`, and an empty text split by an empty separator.

Where ours follows cel-go, the engine of Kubernetes, and the witness does not, they are passed over:
- NaN has no order: `0.0 / 0.0 < 1.0` is an error;
- a field of a value that is no map is absent: `has(m.c.d.e)`, `m.?n.?e`.

An optional must never be the result or part of it: the binding of the witness crashes on one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.cel import Environment, Limits, UInt, compile_node, new_frame
from engine.cel.check import check
from engine.cel.functions import FAMILIES, function_table, lists
from engine.cel.parser import parse
from engine.cel.values import DYN, CelType, Duration, Timestamp, key_value, type_of
from engine.errors import CelError

if TYPE_CHECKING:
    from collections.abc import Mapping

cel = pytest.importorskip("cel_expr_python.cel")

VARIABLES: Mapping[str, object] = {
    "m": {"c": {"d": [1, 2.0, "x", None]}},
    "k": {"a": 1},
    "l": [1, 2, 2.0, "a", True, None, [1], {"a": 1}],
    "i": 7,
    "f": 0.5,
    "s": "aé\U0001f431b",
    "t": True,
    "n": None,
}

_LEAVES = st.sampled_from(
    [
        "0", "1", "2", "-1", "9223372036854775807", "-9223372036854775808", "9007199254740993",
        "0u", "1u", "18446744073709551615u", "0.0", "1.0", "-0.5", "2.5", "1e300",
        "9007199254740992.0", "''", "'a'", "'ab'", "'é'", "'10'", "'1.5'", "'true'", "b''",
        "b'a'", "true", "false", "null", "[]", "[1, 2]", "[1, 1.0, 'a']", "[[1], [1.0]]", "{}",
        "{'a': 1}", "{true: 'y'}", "m", "k", "l", "i", "f", "s", "t", "n", "k.a",
        "m.c.d", "m.missing", "absent", "x", "y", "duration('90s')", "duration('-1h')",
        "timestamp('2020-02-29T12:30:00Z')", "timestamp(0)", "int", "string",
    ]
)  # fmt: skip

_BINARY = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"]
_FUNCTIONS = [
    "size", "uint", "double", "bool", "bytes", "type", "dyn", "duration", "timestamp",
    "math.abs", "math.sign", "math.ceil", "math.floor", "math.round", "math.trunc",
    "math.isNaN", "math.bitNot",
]  # fmt: skip
_PAIRS = [
    "math.bitAnd", "math.bitOr", "math.bitShiftLeft",
    "math.bitShiftRight", "sets.contains", "sets.equivalent", "sets.intersects",
]  # fmt: skip
_METHODS = [
    "size()", "reverse()", "distinct()", "flatten()", "trim()", "lowerAscii()", "upperAscii()",
    "getHours()", "getSeconds()", "getDayOfWeek()", "getDayOfYear()", "getFullYear('+05:30')",
    "getMinutes('America/St_Johns')", "a",
]  # fmt: skip
_METHODS_OF_ONE = [
    "contains", "startsWith", "endsWith", "charAt", "indexOf", "lastIndexOf", "substring",
    "split", "join",
]  # fmt: skip
_MACROS = ["all", "exists", "exists_one", "map", "filter"]
_MACROS_OF_TWO = ["all", "exists", "existsOne", "transformList"]


def _larger(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    part = smaller.map(lambda text: f"({text})")
    pick = st.sampled_from
    return st.one_of(
        st.builds("{} {} {}".format, part, pick(_BINARY), part),
        st.builds("{}{}".format, pick(["!", "-"]), part),
        st.builds("{} ? {} : {}".format, part, part, part),
        st.builds("{}[{}]".format, part, smaller),
        st.builds("{}[?{}].orValue({})".format, part, pick(["0", "i", "'a'", "x"]), smaller),
        st.builds("{}.?a.orValue({})".format, part, smaller),
        st.builds("{}.?a.c.hasValue()".format, part),
        st.builds("optional.ofNonZeroValue({}).or({}.?a).value()".format, smaller, part),
        st.builds("optional.of({}).optMap(x, {}).orValue({})".format, smaller, smaller, smaller),
        st.builds("{}.?c.optFlatMap(x, x.?d).orValue({})".format, part, smaller),
        st.builds("{}.first().orValue({})".format, part, smaller),
        st.builds("has({}.{})".format, part, pick(["a", "c", "missing"])),
        st.builds("{}({})".format, pick(_FUNCTIONS), smaller),
        st.builds("{}({}, {})".format, pick(_PAIRS), smaller, smaller),
        st.builds("{}.{}".format, part, pick(_METHODS)),
        st.builds("{}.{}({})".format, part, pick(_METHODS_OF_ONE), smaller),
        st.builds("int(type({0}) == bool ? null : {0})".format, part),
        st.builds(
            "math.{}(dyn({}), dyn({}))".format, pick(["greatest", "least"]), smaller, smaller
        ),
        st.builds("{}.replace({}, {})".format, part, smaller, smaller),
        st.builds("{}.slice({}, {})".format, part, smaller, smaller),
        st.builds("{}.{}(x, {})".format, part, pick(_MACROS), smaller),
        st.builds("dyn({}).sortBy(x, {})".format, smaller, smaller),
        st.builds("{}.map(x, {}, {})".format, part, smaller, smaller),
        st.builds("{}.{}(y, x, {})".format, part, pick(_MACROS_OF_TWO), smaller),
        st.builds("[{}, {}]".format, smaller, smaller),
        st.builds("[?{}.?a, {}]".format, part, smaller),
        st.builds("{{{}: {}}}".format, smaller, smaller),
        st.builds("{{?'a': {}.?a}}".format, part),
    )


EXPRESSIONS = st.recursive(_LEAVES, _larger, max_leaves=6)

ERROR = "error"
_ENVIRONMENT = Environment(
    variables=dict.fromkeys((*VARIABLES, "absent"), DYN),
    functions=function_table(
        family for family in FAMILIES if family not in {lists.KUBERNETES_LISTS, lists.STATISTICS}
    ),
    limits=Limits(nesting=9),
)
_CONFIG = """
extensions: [{name: bindings}, {name: optional}, {name: strings}, {name: math}, {name: sets},
  {name: lists}, {name: two-var-comprehensions}]
"""
_WITNESS = cel.NewEnv(
    config=cel.NewEnvConfigFromYaml(_CONFIG),
    variables=dict.fromkeys((*VARIABLES, "absent"), cel.Type.DYN),
)


def _ours(expression: str) -> object:
    root = check(parse(expression, _ENVIRONMENT.limits), _ENVIRONMENT).root
    try:
        return _plain(compile_node(root, _ENVIRONMENT)(new_frame(VARIABLES)))
    except CelError as error:
        assume(str(error) != "NaN has no order")
        return ERROR


def _plain(value: Any) -> object:  # noqa: ANN401 (any CEL value)
    """Return a value in a form in which values of unlike types are unequal."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Timestamp | Duration):
        return type(value).__name__.upper(), value.nanos // 1000
    if isinstance(value, CelType):
        return "TYPE", value.name
    return type_of(value).name.upper(), repr(value)


def _key(key: object) -> str:
    value = key_value(key)
    return repr(int(value) if isinstance(value, UInt) else value)  # the witness drops the `u`


def _theirs(expression: str) -> object:
    try:
        found = _WITNESS.compile(expression, disable_check=True).eval(data=VARIABLES)
    except (RuntimeError, ValueError):
        return ERROR
    return _read(found)


def _read(found: Any) -> object:  # noqa: ANN401 (the witness has no types)
    """Return the value of the witness in the form of `_plain`."""
    kind = found.type().name()
    if kind == "ERROR":
        return ERROR
    value = found.value()
    if kind.startswith("LIST"):
        return [_read(item) for item in value]
    if kind.startswith("MAP"):
        return {repr(key): _read(item) for key, item in value.items()}
    if kind == "TIMESTAMP":
        return kind, (value - _EPOCH) // timedelta(microseconds=1)
    if kind == "DURATION":
        return kind, value // timedelta(microseconds=1)
    if kind == "TYPE":
        return kind, _TYPE_NAMES.get(str(value), str(value).lower())
    if kind == "UINT":
        value = UInt(value)
    return {"NULL": "NULL_TYPE"}.get(kind, kind), repr(bytes(value) if kind == "BYTES" else value)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPE_NAMES = {
    "LIST<DYN>": "list",
    "MAP<DYN, DYN>": "map",
    "NULL": "null_type",
    "DURATION": "google.protobuf.Duration",
    "TIMESTAMP": "google.protobuf.Timestamp",
}


@settings(max_examples=100)
@given(EXPRESSIONS)
@example("9007199254740993 == 9007199254740992.0")
@example("cel.bind(x, 1 / 0, true || x)")
@example("has(m.missing) && m.missing == 'a'")
@example("l.all(x, x > 0)")
def test_the_witness_comes_to_the_same_value_or_to_an_error_too(expression: str) -> None:
    ours, theirs = _ours(expression), _theirs(expression)
    assume(theirs != ERROR or ours == ERROR or not ("has(" in expression or "?" in expression))
    assert ours == theirs
