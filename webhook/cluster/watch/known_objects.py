"""Which objects of a kind are known, and which of them the current list has not shown yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.model.partitioned_dict import PartitionedDict


class KnownObjects:
    """Keys of objects, `namespace/name`; those that a list does not show are gone.

    There may be millions, and others wait meanwhile: so no step goes over all of them, or copies
    them.

    Attributes:
        shown: how many objects the list has shown so far.
    """

    def __init__(self) -> None:
        self.shown = 0
        self._list = 0  # the number of the current one
        self._shown_by: PartitionedDict[int] = PartitionedDict()  # the last list that showed each
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin_list(self) -> None:
        """Take all objects for not shown."""
        self._list += 1
        self.shown = 0

    def show(self, key: str, intern: Callable[[str], str]) -> None:
        """Note that an object is there.

        Args:
            key: `namespace/name`.
            intern: returns the string to hold for it.
        """
        part = self._shown_by.part(key)
        last = part.get(key)
        if last == self._list:
            return
        if last is None:
            self._count += 1
            key = intern(key)
        self.shown += 1
        part[key] = self._list

    def discard(self, key: str) -> None:
        """Forget an object that is gone, if it is known."""
        last = self._shown_by.part(key).pop(key, None)
        if last is not None:
            self._count -= 1
            self.shown -= last == self._list

    def unshown(self) -> Iterator[list[str]]:
        """Yield the objects that the list has not shown; after each of some parts of all.

        Those that were yielded may be discarded meanwhile.
        """
        for part in self._shown_by.parts:
            yield [key for key, last in part.items() if last != self._list]
