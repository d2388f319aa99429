"""The page on the names that expressions of a policy can read."""

from __future__ import annotations

from engine.cel import CelType
from engine.cel.values import TIMESTAMP
from engine.policy.environment import OBJECT, TABLE
from tests.contents import with_contents

_HEAD = """# What expressions can read

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

`make docs` writes this page from `engine/policy/environment.py` and `tests/policy_docs/names.py`:
do not edit it by hand.
"""

_TAIL = """## Statistics over nodes

A score may compare a node with all others: `nodes.map(n, value).mean()` is the mean of a value over
nodes, `.stddev()` its standard deviation.

- `nodes` has the nodes that the pod's node selector and required node affinity allow, whatever
  filters say. `nodes.filter(n, test).map(n, value)` leaves out others, such as those without a
  report: `nodes.filter(n, has(n.usage))`.
- In the loop, `n` has the fields of `node`. It may read the request, and not `node`.
- Without any node, or if the value of one is an error, the statistic is an error; it names the
  first such node.
- It is computed once for each pod, however many nodes are scored.

The pod changes the variance of a share over nodes by d * (2 * (x - m) + d), where x is the share of
a node, m the mean, and d what the pod takes of the node; see `strategy: Balanced` in
[plugins.md](plugins.md#strategy-balanced). [even-requests](../policies/even-requests) is a policy
that prefers the node where that is least.

## Where engines of CEL disagree

Expressions have the values that cel-go gives in Kubernetes:

- NaN has no order, so `0.0 / 0.0 < 1.0` is an error.
- A field of a value that is no map is absent for `has(a.b)` and `a.?b`.
- The sum of an empty list has the type of its elements.
- The string of a timestamp keeps its offset.
- `'%s'.format` of bytes that are not UTF-8 is an error.

These differences from cel-go are known, and each is tested. In the first five the conformance
suite of the language decides:

| expression | here | cel-go |
|---|---|---|
| `duration('-90s').getMilliseconds()` | `0`: the milliseconds of the last second | all, `-90000` |
| `'%e'.format([1.5])` | `'1.500000e+00'` | `1.500000` times ten to the power, in superscript |
| `{'a': dyn(3)}.?a.b` | an error: write `.?b` for a field of an optional number | absent |
| `'abc'.indexOf('a', 4)` | an error: there is no place past the end | `-1` |
| `isIP('::ffff:a00:1')` | `true`: the IPv4 address in it | `false` |
| `quantity('1k') == quantity('999').add(1)` | `true` | an error, as of all sums on the right |
| `quantity('0').sub(-9223372036854775807 - 1).sign()` | `1` | adds the least int |
| `quantity('9m').asApproximateFloat() == 0.009` | `true`: the nearest double | `false` |
| `quantity('1') == dyn(1)` | `false` | an error; `dyn(1) == quantity('1')` is `false` |
| `string(duration('9223372036.854775807s'))` | `'9223372036.854775807s'` | `'9223372036.854776s'` |
| `lists.range(-1)` | an error | an empty list |
| `1 == 1.0` | `true`; `stowplan lint` warns | refused: numbers of different known types |
| `[-1, 'a'].size()` | `2`; `stowplan lint` warns | refused: elements of different types |
| `'%d'.format([1.5])` | `'1.5'` | refused: types of arguments are checked at load |
| `'abc'.reverse()` | `'cba'` | refused, as all newer functions: `math.greatest()` |

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


def name_reference() -> str:
    """Return the page that lists all names that expressions can read."""
    rows = ["## Names", "", "| name | type | unit | meaning | where |", "|---|---|---|---|---|"]
    rows += [
        f"| `{entry.path}` | {_type_text(entry.type)} | {entry.unit} | {entry.meaning} "
        f"| {entry.scope.text} |"
        for entry in TABLE
    ]
    return with_contents("\n".join([_HEAD, *rows, "", _TAIL]))


def _type_text(of_type: CelType) -> str:
    if of_type == TIMESTAMP:
        return "timestamp"
    return str(of_type).replace(OBJECT.name, "map")
