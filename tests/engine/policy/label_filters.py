"""Random filters over node labels, and random pods and nodes to ask them of."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.cel import UInt

KEYS = ("a", "b", "gen")
VALUES = ("", "x", "y", "0", "3", "03", "4", "9223372036854775807", "9223372036854775808")
_NUMBERS = (
    "-1", "0", "3", "4u", "2.5", "-0.5", "3.0", "9223372036854775807", "9223372036854775808.0",
    "9007199254740993", "9007199254740992.0", "variables.n",
)  # fmt: skip
_KEY_TEXTS = ("'a'", "'b'", "'gen'", "'no key'", "variables.key")
_TEXTS = (*(f"'{value}'" for value in VALUES), "'no value!'", "variables.text", "pod.name")
_LISTS = (
    "[]", "['x', 'y']", "['x', '', '0']", "[variables.text, 'x', 'no value!']", "variables.list",
    "{'x': 1, 'gen': 2}",
)  # fmt: skip
_NUMBER_LISTS = ("[3]", "[3, 4.0, 0u]", "[1, 'x']", "variables.list")

_pick = st.sampled_from
keys = _pick(_KEY_TEXTS)
texts = _pick(_TEXTS)
lists = _pick(_LISTS)
numbers = _pick(_NUMBERS)
fields = _pick(KEYS)
equalities = _pick(["==", "!="])
comparisons = _pick(["==", "!=", "<", "<=", ">", ">="])

_optionals = st.one_of(
    st.builds("node.labels[?{}]".format, keys), st.builds("node.labels.?{}".format, fields)
)
_read = st.one_of(
    st.builds("node.labels.{}".format, fields), st.builds("node.labels[{}]".format, keys)
)


def _value(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}.orValue({})".format, _optionals, values | texts),
        st.builds("{}.or({}).orValue({})".format, _optionals, _optionals, values | texts),
        st.builds("{}.optMap(m, m).orValue({})".format, _optionals, texts),
        st.builds("({} in node.labels ? {} : {})".format, keys, values, values | texts),
        st.builds("(variables.yes ? {} : {})".format, values, values | texts),
    )


_values = st.recursive(_read, _value, max_leaves=3)


def _about(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return conditions on the value of a label."""
    return st.one_of(
        st.builds("{} {} {}".format, values, equalities, texts),
        st.builds("{} {} {}".format, texts, equalities, values),
        st.builds("{} {} {}".format, values, equalities, numbers.map("dyn({})".format)),
        st.builds("{} in {}".format, values, lists),
        st.builds("int({}) {} {}".format, values, comparisons, numbers),
        st.builds("{} {} int({})".format, numbers, comparisons, values),
        st.builds("int({}) in {}".format, values, _pick(_NUMBER_LISTS)),
    )


_leaves = st.one_of(
    _about(_values),
    st.builds("{} in node.labels".format, keys),
    st.builds("has(node.labels.{})".format, fields),
    st.builds("{}.hasValue()".format, _optionals),
    _pick(["true", "false", "variables.yes", "variables.absent", "variables.n > 2"]),
    st.just("has(node.labels)"),
)  # fmt: skip


def _larger(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    part = smaller.map("({})".format)
    return st.one_of(
        st.builds("!{}".format, part),
        st.builds("{} {} {}".format, part, _pick(["&&", "||"]), part),
        st.builds("{} ? {} : {}".format, part, part, part),
        st.builds(
            "{}.{}(z, node.labels.{} == z || {})".format,
            lists, _pick(["all", "exists"]), fields, part,
        ),
        st.builds(
            "{}.{}(z, z in node.labels && {})".format, lists, _pick(["all", "exists"]), part
        ),
        st.builds("variables.list.exists(i, z, dyn(z) != i && node.labels.a == z)".format),
        st.builds("cel.bind(v, {}, {})".format, _values, _about(st.just("v"))),
        st.builds("cel.bind(v, {}, {} && v)".format, part, part),
        st.builds("cel.bind(v, {}, node.labels.a == v || {})".format, texts, part),
        st.builds("cel.bind(n, node, 'x' == n.labels.a && {})".format, part),
        st.builds(
            "{}.optMap(m, {}).orValue({})".format, _optionals, _about(st.just("m")), smaller
        ),
        st.builds("{}.optFlatMap(m, node.labels.?b).orValue('x') == 'x'".format, _optionals),
    )  # fmt: skip


label_filters = st.recursive(_leaves, _larger, max_leaves=6)
"""Filters of which every part is about labels."""

_others = _pick(
    [
        "node.name == 'n'",
        "node.usage.cpu < 0.5",
        "node.labels.a.startsWith('x')",
        "node.labels.a == node.labels.b",
        "node.labels.a < 'y'",
        "double(node.labels.gen) > 2.0",
        "variables.list.exists_one(z, node.labels.a == z)",
        "node.labels.exists(k, k == 'a')",
        "size(node.labels) > 1",
        "node.labels[node.labels.a] == 'x'",
        "node.labels.a + 'x' == 'xx'",
        "node.labels[?'a'] == optional.of('x')",
        "node.labels[?'a'] != optional.none()",
    ]
)
# The map keeps `|` from taking `_others` for one of a dozen kinds of leaves.
mixed_filters = st.recursive(_others | _leaves.map(str), _larger, max_leaves=6)
"""Filters of which some parts are about more than labels can say."""

variables = st.fixed_dictionaries(
    {
        "yes": st.sampled_from([True, False, None]),
        "n": st.sampled_from([3, -1, 0, UInt(4), 2.5, 1e300, float("nan"), 2**63 - 1, "x"]),
        "text": st.sampled_from([*VALUES, "no value!", "x" * 63, "x" * 64, 3, None]),
        "key": st.sampled_from([*KEYS, "no key", "", 3, None]),
        "list": st.lists(st.sampled_from([*VALUES, *KEYS, "no value!", 3, 0.0]), max_size=4),
    }
)
"""What a pod comes to; `absent` could not be computed."""

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, "z", "x" * 63)))
"""The labels of a node."""
