"""The objects, their versions, and the history that lists and watches are served from.

Objects are kept as JSON without `kind` and `apiVersion`: 20,000 pods cost little more than their
text, a page is a join, and nobody can change one behind the store's back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.fake_api_server.resources import Key, Resource
from tests.fake_api_server.statuses import too_new, too_old

Object = dict[str, Any]
"""An object of the API as decoded JSON."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `before` is None for a new object, `after` for a deleted one."""

    version: int
    key: Key
    before: bytes | None
    after: bytes | None


class Collection:
    """All objects of a resource and what happened to them.

    Attributes:
        objects: bare JSON by key.
        oldest: the first version that a watch may still start from.
        listeners: called with each change, in order.
    """

    def __init__(self, history_limit: int, since: int) -> None:
        self.objects: dict[Key, bytes] = {}
        self.oldest = since
        self.listeners: set[Callable[[Change], None]] = set()
        self._history: deque[Change] = deque()
        self._limit = history_limit
        self._snapshot: tuple[int, list[tuple[Key, bytes]]] | None = None

    def record(self, change: Change) -> None:
        """Apply a change, remember it, and tell the listeners."""
        if change.after is None:
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.after
        self._history.append(change)
        if len(self._history) > self._limit:
            self.oldest = self._history.popleft().version
        for listener in tuple(self.listeners):
            listener(change)

    def forget(self, version: int) -> None:
        """Drop the whole history: nothing older than `version` can be asked for any more."""
        self._history.clear()
        self.oldest = version

    def since(self, version: int) -> list[Change]:
        """Return the changes after `version`.

        Raises:
            ApiFault: 410, the history does not go back that far.
        """
        if version < self.oldest:
            raise too_old(version, self.oldest)
        later: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            later.append(change)
        return later[::-1]

    def at(self, version: int) -> list[tuple[Key, bytes]]:
        """Return the objects as they were at `version`, by key.

        Raises:
            ApiFault: 410, the history does not go back that far.
        """
        later = self.since(version)
        if self._snapshot and self._snapshot[0] == version:
            return self._snapshot[1]
        objects = dict(self.objects)
        for change in reversed(later):
            if change.before is None:
                del objects[change.key]
            else:
                objects[change.key] = change.before
        self._snapshot = version, sorted(objects.items())
        return self._snapshot[1]


class Store:
    """The collections of the installed resources, under one counter of versions.

    Attributes:
        version: of the last write to any resource; the first object gets the next.
    """

    def __init__(self, resources: Iterable[Resource], history_limit: int) -> None:
        self.version = 1
        self._history_limit = history_limit
        self._collections: dict[Resource, Collection] = {}
        for resource in resources:
            self.install(resource)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The installed resources."""
        return tuple(self._collections)

    def install(self, resource: Resource) -> None:
        """Make room for a resource; nothing happens where it is installed."""
        if resource not in self._collections:
            self._collections[resource] = Collection(self._history_limit, self.version)

    def uninstall(self, resource: Resource) -> None:
        """Remove a resource with its objects and history."""
        del self._collections[resource]

    def of(self, resource: Resource) -> Collection:
        """Return the collection of an installed resource."""
        return self._collections[resource]

    def read(self, resource: Resource, key: Key) -> Object | None:
        """Return a copy of the object; None where there is none."""
        body = self._collections[resource].objects.get(key)
        return None if body is None else complete(resource, body)

    def write(self, resource: Resource, key: Key, obj: Object) -> Object:
        """Put `obj` in place, under the next version; return it with that version."""
        return complete(resource, self.put(resource, key, obj))

    def put(self, resource: Resource, key: Key, obj: Object) -> bytes:
        """Put `obj` in place, under the next version; return its bare JSON."""
        self.version += 1
        after = _stamped(obj, self.version)
        collection = self._collections[resource]
        collection.record(Change(self.version, key, collection.objects.get(key), after))
        return after

    def remove(self, resource: Resource, key: Key) -> None:
        """Delete an object that exists."""
        self.version += 1
        collection = self._collections[resource]
        collection.record(Change(self.version, key, collection.objects[key], None))

    def compact(self) -> None:
        """Drop all history: a client must have seen the newest version, or list again."""
        for collection in self._collections.values():
            collection.forget(self.version)

    def check_not_future(self, version: int) -> None:
        """Refuse a version that no write has reached.

        Raises:
            ApiFault: 504.
        """
        if version > self.version:
            raise too_new(version, self.version)


def complete(resource: Resource, body: bytes) -> Object:
    """Return the object of bare JSON."""
    obj: Object = msgspec.json.decode(complete_json(resource, body))
    return obj


def complete_json(resource: Resource, body: bytes) -> bytes:
    """Return bare JSON with the kind and apiVersion in front."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        body[1:],
    )


def restamped(body: bytes, version: int) -> bytes:
    """Return bare JSON under another version: a deleted object carries that of its deletion."""
    return _stamped(parts_of(body), version)


def parts_of(text: bytes) -> Object:
    """Return an object of which nothing but its metadata is decoded: others must not wait."""
    parts: Object = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return {**parts, "metadata": msgspec.json.decode(parts["metadata"])}


def _stamped(obj: Object, version: int) -> bytes:
    bare = {name: value for name, value in obj.items() if name not in {"kind", "apiVersion"}}
    # As the API server stores them: an empty map of metadata is left out.
    kept = {name: value for name, value in obj["metadata"].items() if value != {}}
    bare["metadata"] = {**kept, "resourceVersion": str(version)}
    return msgspec.json.encode(bare)
