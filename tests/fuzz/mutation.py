"""Reviews made of others: parts are dropped, repeated, exchanged, or become something hostile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final

_MOST_STEPS = 3
_MOST_PLACES = 400  # looked at in one value

TEXTS: Final = (
    "",
    "0",
    "-1",
    "1e103",
    "9223372036854775807",
    "1" * 130,
    "100m",
    "1.5Gi",
    " 1 ",
    "0x10",
    "NaN",
    "node-a",
    "zone-1",
    "kubernetes.io/hostname",
    "kube-api-access-abcde",
    "Exists",
    "DoesNotExist",
    "NotIn",
    "Gt",
    "NoSchedule",
    "koord-batch",
    "a/b/c",
    "~0~1/",
    "\u0000",
    "\u2028",
    "e\u0301\U0001f600",
    "x" * 300,
    '{"nodes":["node-a"],"id":"0123456789abcdef"}',
    '{"cpu":9223372036854775807}',
)
"""Texts that mean something somewhere, or nearly do."""

NUMBERS: Final = (0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.5, 1e300, -0.0)

KEYS: Final = (
    "affinity",
    "annotations",
    "containers",
    "cpu",
    "ephemeral-storage",
    "example.com/gpu",
    "initContainers",
    "key",
    "labels",
    "limits",
    "matchExpressions",
    "matchFields",
    "memory",
    "metadata",
    "name",
    "namespace",
    "nodeAffinity",
    "nodeSelector",
    "nodeSelectorTerms",
    "operator",
    "overhead",
    "ownerReferences",
    "preference",
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requests",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resources",
    "schedulerName",
    "schedulingGates",
    "spec",
    "stowplan.dev/advice",
    "tolerations",
    "topologySpreadConstraints",
    "uid",
    "values",
    "volumes",
    "weight",
)

_Step = Callable[[Random, Any, Any, Sequence[Any]], None]


def mutated(review: object, random: Random, others: Sequence[Any]) -> bytes:
    """Return the body of a review like another.

    Args:
        review: any JSON value; left as it is.
        random: gives the same body again for the same state.
        others: reviews of which parts may be taken.
    """
    value = json.loads(json.dumps(review))
    for _ in range(random.randint(1, _MOST_STEPS)):
        places = list(_places(value))
        if not places:
            break
        holder, key = random.choice(places)
        random.choice(_STEPS)(random, holder, key, others)
    return json.dumps(
        value, ensure_ascii=bool(random.getrandbits(1)), separators=(",", ":")
    ).encode(errors="replace")


def _drop(_: Random, holder: Any, key: Any, __: Sequence[Any]) -> None:  # noqa: ANN401 - JSON
    del holder[key]


def _replace(random: Random, holder: Any, key: Any, _: Sequence[Any]) -> None:  # noqa: ANN401
    holder[key] = _hostile(random)


def _repeat(random: Random, holder: Any, key: Any, _: Sequence[Any]) -> None:  # noqa: ANN401
    value = holder[key]
    if isinstance(value, list):
        holder[key] = value * random.choice((2, 3, 40))
    elif isinstance(holder, list):
        holder.insert(key, value)
    else:
        holder[random.choice(KEYS)] = value


def _add(random: Random, holder: Any, key: Any, _: Sequence[Any]) -> None:  # noqa: ANN401
    value = holder[key]
    target = value if isinstance(value, dict | list) else holder
    if isinstance(target, dict):
        target[random.choice((*KEYS, *TEXTS))] = _hostile(random)
    else:
        target.append(_hostile(random))


def _exchange(random: Random, holder: Any, key: Any, others: Sequence[Any]) -> None:  # noqa: ANN401
    """Take the part of the same key from another review, or any part."""
    places = list(_places(random.choice(others)))
    alike = [place for place in places if place[1] == key]
    other, there = random.choice(alike or places)
    holder[key] = json.loads(json.dumps(other[there]))


def _many_names(random: Random, holder: Any, key: Any, _: Sequence[Any]) -> None:  # noqa: ANN401
    """Put a map of names that nobody else has."""
    first = random.getrandbits(32)
    names = range(first, first + random.choice((3, 30, 99)))
    holder[key] = {f"e.io/{name:x}": str(name % 1_000) for name in names}


_STEPS: Final[tuple[_Step, ...]] = (
    _drop,
    _replace,
    _replace,
    _repeat,
    _add,
    _add,
    _exchange,
    _exchange,
    _many_names,
)


def _hostile(random: Random) -> object:
    """Return a value that may be anything."""
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(TEXTS)
        case 3:
            return random.choice(NUMBERS)
        case 4:
            return random.choice((None, True, False, [], {}))
        case 5:
            return [_hostile(random) for _ in range(random.randint(1, 3))]
        case _:
            return {random.choice((*KEYS, *TEXTS)): _hostile(random) for _ in range(2)}


def _places(value: object) -> Iterator[tuple[Any, Any]]:
    """Yield items of maps and lists inside, with what holds them, the outer ones first."""
    queue: list[Any] = [value]
    left = _MOST_PLACES
    for holder in queue:
        for key, item in list(_items(holder)):
            yield holder, key
            left -= 1
            if left == 0:
                return
            queue.append(item)


def _items(value: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()
