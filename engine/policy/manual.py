"""The manual page of expressions: the names that they can read, and what else authors look up."""

from __future__ import annotations

from engine.cel import CelType
from engine.cel.values import TIMESTAMP
from engine.policy.environment import OBJECT, TABLE

_MANUAL_HEAD = """# What expressions can read

Policies are written in [CEL](https://cel.dev), with the functions that Kubernetes adds to it:
`quantity()`, `find()`, `sets.contains()`, `semver()`, `?.` and so on.
[All functions](cel-functions.md) and [conversions of units](conversions.md) have their own pages.

- Every amount is a `double`: cpu in cores, memory and storage in bytes, all else in whole units, so
  `node.usage.memory / node.allocatable.memory < 0.65` divides as it reads. Numbers compare across
  types (`pod.requests.cpu > 2`); in arithmetic, write `2.0`.
- A resource with a `/` or `-` in its name is read in brackets: `pod.requests['nvidia.com/gpu']`.
- Reading what is absent is an error, and the rule's `onError` says what follows. Ask first:
  `has(node.usage)`, `'nvidia.com/gpu' in pod.requests`, `node.labels[?'pool'].orValue('none')`.
- `now` moves in steps of 10 seconds, so that what depends on it is computed once in that time; a
  time within the step is later than `now`. All that is decided of a pod sees the same `now`; in
  `stowplan explain` it is the time of the recording, in `stowplan test` that of the case. A node is
  young: `now - node.creationTimestamp < duration('10m')`.
- Conditions are a list, as in Kubernetes; ask for one by its type. A status is a string:
  `node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')`. The first 64 count.
- "Where" says which expressions know a name; filters and scores are asked of every node.

This page is made by `engine/policy/manual.py`.
"""

_MANUAL_TAIL = """## Where engines of CEL disagree

Expressions have the values that cel-go gives in Kubernetes: NaN has no order, so that `0.0 / 0.0 <
1.0` is an error; a field of what is no map is absent for `has(a.b)` and `a.?b`; the sum of an empty
list is of the type of its elements; the text of a timestamp keeps its offset; `'%s'.format` of
bytes that are not UTF-8 is an error. In these the conformance suite of the language decides, and
cel-go differs:

| expression | here and in the suite | cel-go |
|---|---|---|
| `duration('-90s').getMilliseconds()` | `0`: the milliseconds of the last second | `-90000`: all |
| `'%e'.format([1.5])` | `1.500000e+00` | `1.500000` times ten to the power, in superscript |
| `{'a': dyn(3)}.?a.b`: a plain field of an optional number | an error; write `.?b` | absent |

Quantities are compared by their amounts. In Kubernetes one on the right of `==` that `add` or `sub`
gave is an error, as in `quantity('1k') == quantity('999').add(1)`, and `sub` of the least int,
-9223372036854775808, adds it.

Here more is accepted than where Kubernetes checks types; what is probably not meant, `stowplan
lint` warns of: `==` of numbers of unlike types that are known, such as `pod.priority == 1.0`, and a
literal of elements of unlike types, `[-1, 'a']`. The arguments of `format` are counted at load, and
their types looked at only when it is called: `'%d'.format([1.5])` is `1.5`. Functions of newer
versions of the language than that of Kubernetes exist without a warning: `s.reverse()`,
`math.greatest()`.

`stowplan test --cross-check` evaluates expressions with cel-python, too. `m[?k].orValue(d)`, which
that cannot read, is given to it as `k in m ? m[k] : d`, and numbers of unlike types are compared as
doubles. What it cannot read even so, functions beyond the core of the language above all, is named
and not compared. These differences are known, and counted apart:

| difference | here | cel-python |
|---|---|---|
| arithmetic of numbers of unlike types | `dyn(1) + 2.0` is an error | `3.0` |
| equality of values of unlike types | `dyn(1) == null` is false, `[1] == [1.0]` is true | errors |
| order of NaN | `0.0 / 0.0 < 1.0` is an error | false |
| text of a bool | `string(true)` is `true` | `True` |
| milliseconds of a duration | of the last second | all |
"""


def manual() -> str:
    """Return the page of the manual that lists all names."""
    rows = ["| name | type | unit | meaning | where |", "|---|---|---|---|---|"]
    rows += [
        f"| `{entry.path}` | {_type_text(entry.type)} | {entry.unit} | {entry.meaning} "
        f"| {entry.scope.text} |"
        for entry in TABLE
    ]
    return "\n".join([_MANUAL_HEAD, *rows, "", _MANUAL_TAIL])


def _type_text(of_type: CelType) -> str:
    if of_type == TIMESTAMP:
        return "timestamp"
    return str(of_type).replace(OBJECT.name, "map")
