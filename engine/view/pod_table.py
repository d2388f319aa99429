"""All pods, as a table of small integers.

A pod is a slot: the row of its node, the numbers of its shape and of its traits, and two moments.
Full pod objects are never kept; at 150,000 pods they would cost gigabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from operator import length_hint

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.caches import PartitionedDict
from engine.model.pod import NO_TRAITS
from engine.model.pod_shape import PodShape
from engine.view.trait_book import TraitBook

_SPARE_TRAITS = 1_024  # of pods that are gone
_COPIED_AT_ONCE = 4  # traits, for each that is new: 5 us each

NO_ROW = -1
"""The row of a pod on no node."""

IN_FLIGHT, ELSEWHERE = "/", " "
"""Begin the keys of pods that are not seen yet, and of further nodes that a pod may be bound to.

No `namespace/name` begins so.
"""

SCHEDULED, RUNNING, QUEUED, OVERDUE, GATED = 1, 2, 4, 16, 32
"""The standing of a pod, added up: bound to a node and Pending or Running; Running.

Or QUEUED: it waits for quota, and its namespace does not use what it requests; with GATED it has
gates of others, too, and claims nothing of its quota. Or OVERDUE alone: it is being deleted, should
be gone by now, and counts for its namespace no longer."""


class PodEntry(msgspec.Struct, frozen=True, gc=False):
    """The stored facts of a pod.

    Attributes:
        row: of the node it counts on, NO_ROW when there is none.
        assigned_at: microseconds since the epoch.
        initialized_at: microseconds since the epoch, 0 where it is not initialized.
        assumed: whether it is only expected on its node, not bound there.
        standing: SCHEDULED, RUNNING, both added up, QUEUED, QUEUED and GATED, OVERDUE, or 0.
        traits: what rules for other pods read of it, by `traits_of`.
    """

    row: int
    shape: PodShape
    assigned_at: int
    initialized_at: int
    assumed: bool = False
    standing: int = 0
    traits: bytes = NO_TRAITS

    @property
    def is_overdue(self) -> bool:
        """Whether it is being deleted and should be gone by now: nobody waits for that."""
        return self.standing == OVERDUE

    def counts_on_its_node_as(self, other: PodEntry) -> bool:
        """Return whether both count alike on their node, where the standing does not matter."""
        return (
            self.row == other.row
            and self.shape is other.shape
            and self.assigned_at == other.assigned_at
            and self.initialized_at == other.initialized_at
            and self.assumed == other.assumed
            and self.traits == other.traits
        )


class PodTable:
    """Slots of pods, found by `namespace/name`, and for each row the slots on it.

    Shapes are numbered on first use and their numbers reused when the last pod of a shape is gone,
    so memory follows what is alive.
    """

    def __init__(self) -> None:
        # numbers of traits. One with many of pods that are gone is replaced: the others are copied
        # a few at a time, for 10,000 would take 50 ms
        self.traits = TraitBook()
        self.shapes: list[PodShape | None] = []
        self._slot_of: PartitionedDict[int] = PartitionedDict()
        self._keys: list[str] = []
        self._row: array[int] = array("i")
        self._shape: array[int] = array("i")
        self._traits: array[int] = array("i")
        self._assigned_at: array[int] = array("q")
        self._initialized_at: array[int] = array("q")
        self._assumed = bytearray()
        self._standing = bytearray()
        self._on_row: list[array[int]] = []
        self._place: array[int] = array("i")  # of a slot among those on its row
        self._shape_number: dict[PodShape, int] = {}
        self._shape_pods: list[int] = []
        self._free_slots: list[int] = []
        self._free_shapes: list[int] = []
        self.most_traits = _SPARE_TRAITS  # before that is due
        self._copied: tuple[TraitBook, Iterator[bytes]] | None = None

    def __len__(self) -> int:
        return len(self._keys) - len(self._free_slots)

    def get(self, key: str) -> PodEntry | None:
        slot = self._slot_of.part(key).get(key)
        return None if slot is None else self._entry(slot)

    def key(self, key: str) -> str:
        """Return `namespace/name` as the string stored of a pod; the argument if it is unknown."""
        slot = self._slot_of.part(key).get(key)
        return key if slot is None else self._keys[slot]

    def containing(self, text: str) -> Iterator[tuple[str, PodEntry]]:
        """Yield the pods whose `namespace/name` contains a text, in any order."""
        for part in self._slot_of.parts:
            for key, slot in part.items():
                if text in key and not key.startswith((IN_FLIGHT, ELSEWHERE)):
                    yield key, self._entry(slot)

    def entries(self) -> Iterator[PodEntry]:
        return (self._entry(slot) for part in self._slot_of.parts for slot in part.values())

    def put(self, key: str, entry: PodEntry) -> None:
        row, shape = entry.row, entry.shape
        slots = self._slot_of.part(key)
        slot = slots.get(key)
        if slot is None:
            slot = slots[key] = self._free_slots.pop() if self._free_slots else self._grow()
            self._keys[slot] = key
            self._enter(slot, row)
            self._shape[slot] = self._number(shape)
        else:
            if self._row[slot] != row:
                self._leave(slot)
                self._enter(slot, row)
            if self.shapes[self._shape[slot]] is not shape:
                self._drop_shape(self._shape[slot])
                self._shape[slot] = self._number(shape)
        self._traits[slot] = self.traits.number(entry.traits)
        self._assigned_at[slot] = entry.assigned_at
        self._initialized_at[slot] = entry.initialized_at
        self._assumed[slot] = entry.assumed
        self._standing[slot] = entry.standing

    def delete(self, key: str) -> None:
        slot = self._slot_of.part(key).pop(key)
        self._leave(slot)
        self._drop_shape(self._shape[slot])
        self._keys[slot] = ""
        self._traits[slot] = 0
        self._free_slots.append(slot)

    def count_on(self, row: int) -> int:
        return len(self._on_row[row]) if row < len(self._on_row) else 0

    def on_row(self, row: int) -> Iterator[tuple[str, PodEntry]]:
        """Yield the pods on a row by `namespace/name`; nothing may be stored until the end."""
        if row >= len(self._on_row):
            return
        keys, entry = self._keys, self._entry
        for slot in self._on_row[row]:
            yield keys[slot], entry(slot)

    def renew_traits(self) -> NDArray[np.int32] | None:
        """Go on replacing the book of traits.

        To be called after each pod whose traits have a number of at least `most_traits`.

        Returns:
            The new number of each old one, when the book was replaced.
        """
        if self._copied is None:
            texts = [self.traits.texts[number] for number in self._used_traits()]
            self._copied = TraitBook(), iter(texts)
        book, left = self._copied
        for text in islice(left, _COPIED_AT_ONCE):
            book.number(text)
        if length_hint(left):
            return None
        numbers = np.zeros(len(self.traits), np.int32)
        for number in self._used_traits():
            numbers[number] = book.number(self.traits.texts[number])
        self._traits = array("i", numbers[np.frombuffer(self._traits, np.int32)].tobytes())
        self.most_traits = 2 * len(book) + _SPARE_TRAITS
        self.traits, self._copied = book, None
        return numbers

    def _used_traits(self) -> list[int]:
        """Return the numbers of traits that pods have."""
        used: list[int] = np.flatnonzero(
            np.bincount(np.frombuffer(self._traits, np.int32))
        ).tolist()
        return used

    def _entry(self, slot: int) -> PodEntry:
        shape = self.shapes[self._shape[slot]]
        assert shape is not None  # noqa: S101 - INVARIANT: a slot in use has a shape
        return PodEntry(
            self._row[slot],
            shape,
            self._assigned_at[slot],
            self._initialized_at[slot],
            bool(self._assumed[slot]),
            self._standing[slot],
            self.traits.texts[self._traits[slot]],
        )

    def _enter(self, slot: int, row: int) -> None:
        """Put a slot that is on no row on the given one, which may be NO_ROW."""
        self._row[slot] = row
        if row != NO_ROW:
            while len(self._on_row) <= row:
                self._on_row.append(array("i"))
            on_row = self._on_row[row]
            self._place[slot] = len(on_row)
            on_row.append(slot)

    def _leave(self, slot: int) -> None:
        """Take a slot off its row, if it is on one."""
        row = self._row[slot]
        if row != NO_ROW:
            on_row, place = self._on_row[row], self._place[slot]
            last = on_row.pop()
            if last != slot:  # it takes the free place
                on_row[place] = last
                self._place[last] = place

    def _drop_shape(self, number: int) -> None:
        """Count one pod less of a shape; forget it after the last."""
        self._shape_pods[number] -= 1
        if self._shape_pods[number] == 0:
            shape = self.shapes[number]
            assert shape is not None  # noqa: S101 - INVARIANT: a counted shape is stored
            del self._shape_number[shape]
            self.shapes[number] = None
            self._free_shapes.append(number)

    def _number(self, shape: PodShape) -> int:
        """Return the number of a shape, one pod more on it."""
        number = self._shape_number.get(shape)
        if number is None:
            if self._free_shapes:
                number = self._free_shapes.pop()
                self.shapes[number] = shape
                self._shape_pods[number] = 0
            else:
                number = len(self.shapes)
                self.shapes.append(shape)
                self._shape_pods.append(0)
            self._shape_number[shape] = number
        self._shape_pods[number] += 1
        return number

    def _grow(self) -> int:
        """Return a new slot at the end."""
        self._keys.append("")
        self._row.append(NO_ROW)
        self._place.append(0)
        self._shape.append(0)
        self._traits.append(0)
        self._assigned_at.append(0)
        self._initialized_at.append(0)
        self._assumed.append(False)
        self._standing.append(0)
        return len(self._keys) - 1
