"""The patch of a decision for other pods of its template, as text.

Only the names of nodes and the advice differ between them, so the rest is encoded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from engine.model.advice import Advice
from engine.placement.annotations import advice_id, advice_text, fitted
from engine.placement.patch import Patch

_HOLES: Final = tuple(msgspec.Raw(bytes([number])) for number in range(3))
"""For the advice and two lists of names: control characters, which JSON has escaped only."""

_HOLE: Final = re.compile(rb"([\0-\2])")
_encode: Final = msgspec.json.Encoder().encode


class SharedPatch(NamedTuple):
    """The patch of one of the pods that share a decision.

    Attributes:
        document: the JSON Patch.
        advice: the advice in it.
    """

    document: bytes
    advice: Advice


class PatchTemplate:
    """The patch of a decision, to be filled in for each pod that shares it.

    Args:
        patch: of the pod that the decision was made for; has an advice with an id.
    """

    def __init__(self, patch: Patch) -> None:
        self._advice = patch.advice
        self._turns = patch.turns
        lists = [] if patch.turns is None else patch.turns.lists
        holes = {id(names): hole for names, hole in zip(lists, _HOLES[1:], strict=False)}
        text, hole = advice_text(patch.advice), _HOLES[0]
        operations = _with_holes(
            patch.operations, lambda value: hole if value == text else holes.get(id(value))
        )
        *pairs, self._end = _HOLE.split(_encode(operations))
        self._parts = list(zip(pairs[::2], (ord(number) for number in pairs[1::2]), strict=True))

    def filled(self, number: int, review_uid: str) -> SharedPatch:
        """Return the patch of another pod, with an advice of its own.

        The scheduler will not put all of them on one node either, and each counts on its best node
        until it is bound.

        Args:
            number: how many pods have had one before.
            review_uid: of the admission review.
        """
        nodes, turns = self._advice.nodes, self._turns
        lists: Sequence[Sequence[str]] = ()
        if turns is not None:
            lists, nodes = turns.listed(number), turns.nodes(number)
            number //= turns.count
        first = number % max(1, len(nodes))
        nodes = nodes[first:] + nodes[:first]
        advice = fitted(structs.replace(self._advice, nodes=nodes, id=advice_id(review_uid)))
        fillings = [_encode(advice_text(advice)), *map(_encode, lists)]
        parts = [part for text, hole in self._parts for part in (text, fillings[hole])]
        return SharedPatch(b"".join([*parts, self._end]), advice)


def _with_holes(value: Any, hole_for: Callable[[Any], msgspec.Raw | None]) -> Any:  # noqa: ANN401 (JSON)
    """Return a value with holes, wherever `graft` has put what they stand for."""
    hole = hole_for(value)
    if hole is not None:
        return hole
    if isinstance(value, dict):
        return {key: _with_holes(each, hole_for) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_holes(each, hole_for) for each in value]
    return value
