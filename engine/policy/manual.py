"""The manual page of expressions: the names that they can read, and what else authors look up."""

from __future__ import annotations

from engine.cel import CelType
from engine.cel.values import TIMESTAMP
from engine.policy.environment import OBJECT, TABLE

_MANUAL_HEAD = """# What expressions can read

This page is the reference of all names that expressions of a policy can read. Policies are written
in [CEL](https://cel.dev), with the functions that Kubernetes adds to it: `quantity()`, `find()`,
`sets.contains()`, `semver()`, `?.` and so on. [All functions](cel-functions.md) and
[conversions of units](conversions.md) have pages of their own.

- Every amount is a `double`: cpu in cores, memory and storage in bytes, everything else in whole
  units, so `node.usage.memory / node.allocatable.memory < 0.65` divides as it reads. Numbers
  compare across types (`pod.requests.cpu > 2`); in arithmetic, write `2.0`.
- A resource with a `/` or `-` in its name is read in brackets: `pod.requests['nvidia.com/gpu']`.
- Reading a missing value is an error, and the rule's `onError` decides. Check first:
  `has(node.usage)`, `'nvidia.com/gpu' in pod.requests`, `node.labels[?'pool'].orValue('none')`.
- `now` moves in steps of 10 seconds, rounded down, and is the same for everything that is decided
  about a pod. In `stowplan explain` it is the time of the recording, in `stowplan test` that of the
  case. A young node: `now - node.creationTimestamp < duration('10m')`.
- Conditions are a list, as in Kubernetes; select one by its type. A status is a string:
  `node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')`. The first 64 count.
- The column "where" says which expressions know a name. Filters and scores are evaluated for every
  node.

`make docs` writes this page from `engine/policy/manual.py`: do not edit it by hand.
"""

_MANUAL_TAIL = """## Where engines of CEL disagree

Expressions have the values that cel-go gives in Kubernetes:

- NaN has no order, so `0.0 / 0.0 < 1.0` is an error.
- A field of a value that is no map is absent for `has(a.b)` and `a.?b`.
- The sum of an empty list has the type of its elements.
- The string of a timestamp keeps its offset.
- `'%s'.format` of bytes that are not UTF-8 is an error.

In these cases the conformance suite of the language decides, and cel-go differs:

| expression | here and in the suite | cel-go |
|---|---|---|
| `duration('-90s').getMilliseconds()` | `0`: the milliseconds of the last second | `-90000`: all |
| `'%e'.format([1.5])` | `1.500000e+00` | `1.500000` times ten to the power, in superscript |
| `{'a': dyn(3)}.?a.b`: a plain field of an optional number | an error; write `.?b` | absent |

Quantities are compared by their amounts. In Kubernetes a result of `add` or `sub` on the right of
`==` is an error, as in `quantity('1k') == quantity('999').add(1)`, and `sub` of the least int,
-9223372036854775808, adds it.

stowplan accepts more than the type checker of Kubernetes. `stowplan lint` warns of what is probably
not meant: `==` of numbers of different known types, such as `pod.priority == 1.0`, and a literal of
elements of different types, `[-1, 'a']`. The arguments of `format` are counted at load, and their
types checked only when it is called: `'%d'.format([1.5])` is `1.5`. Functions of newer versions of
the language than that of Kubernetes exist without a warning: `s.reverse()`, `math.greatest()`.

`stowplan test --cross-check` also evaluates expressions with cel-python. It cannot read
`m[?k].orValue(d)`, so it gets `k in m ? m[k] : d` instead, and numbers of different types are
compared as doubles. What it still cannot read, mostly functions beyond the core of the language, is
named and not compared. These differences are known, and counted separately:

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
