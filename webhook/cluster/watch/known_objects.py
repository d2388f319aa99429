"""Which objects of a kind are known, and which of them the current list has not shown yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator


class KnownObjects:
    """Keys of objects, `namespace/name`; those that a list does not show are gone.

    There may be millions, and others wait meanwhile: so no step goes over all of them.
    """

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._unshown: set[str] = set()

    def __len__(self) -> int:
        return len(self._shown) + len(self._unshown)

    @property
    def shown(self) -> int:
        """How many objects the list has shown so far."""
        return len(self._shown)

    def begin_list(self) -> Iterator[None]:
        """Take all objects for not shown; yields after each that a list which broke off showed."""
        if not self._unshown:
            self._shown, self._unshown = self._unshown, self._shown
        while self._shown:
            self._unshown.add(self._shown.pop())
            yield

    def show(self, key: str, intern: Callable[[str], str]) -> None:
        """Note that an object is there.

        Args:
            key: `namespace/name`.
            intern: returns the string to hold for it.
        """
        if key not in self._shown:
            self._unshown.discard(key)
            self._shown.add(intern(key))

    def discard(self, key: str) -> None:
        """Forget an object that is gone, if it is known."""
        self._shown.discard(key)
        self._unshown.discard(key)

    def unshown(self) -> Iterator[str]:
        """Yield the objects that the list has not shown, and forget each."""
        while self._unshown:
            yield self._unshown.pop()
