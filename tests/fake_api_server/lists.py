"""LIST: whole, or in pages of one moment."""

from __future__ import annotations

import base64
import binascii
import bisect
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tests.fake_api_server.resources import Key, Target
from tests.fake_api_server.selectors import selector_of
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Store, complete_json


class _Token(NamedTuple):
    """What `continue` carries; version 0 goes on with the present, whatever that mixes."""

    serial: int
    version: int
    after: Key

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class Lists:
    """Serves lists from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serials = itertools.count(1)
        self._expired = 0

    def expire_tokens(self) -> None:
        """Refuse every `continue` token given out so far."""
        self._expired = next(self._serials)

    def page(self, target: Target, query: Mapping[str, str]) -> bytes:
        """Return the JSON of a list, or of one page of it.

        As in a real server, `resourceVersion=0` ignores `limit`.

        Raises:
            ApiFault: 400 or 422 for a query that makes no sense, 410 for a token or version that
                is too old, 504 for a version that does not exist yet.
        """
        asked = _version(query)
        limit = 0 if query.get("resourceVersion") == "0" else _whole(query.get("limit", "0"))
        selected = selector_of(
            target.resource, query.get("fieldSelector", ""), query.get("labelSelector", "")
        )
        version, after = self._start(target, query, asked)
        objects = self._store.of(target.resource).at(version)
        begin = bisect.bisect_right(objects, after, key=_key_of) if after else 0
        rest = (
            (key, body)
            for key, body in itertools.islice(objects, begin, None)
            if target.namespace in {"", key.namespace} and (selected is None or selected(body))
        )
        page = list(itertools.islice(rest, limit or None))
        metadata: dict[str, str | int] = {"resourceVersion": str(version)}
        if limit and next(rest, None):
            metadata["continue"] = _Token(next(self._serials), version, page[-1][0]).text()
            if selected is None:  # a real server does not count what it must read first
                metadata["remainingItemCount"] = 1 + sum(1 for _ in rest)
        return _list_json(target, metadata, [body for _, body in page])

    def _start(
        self, target: Target, query: Mapping[str, str], asked: int
    ) -> tuple[int, Key | None]:
        """Return the version to show, and the key to begin after."""
        if text := query.get("continue"):
            if asked:
                raise ApiFault(400, "specifying resource version is not allowed with continue")
            return self._resume(target, _parsed(text))
        match = query.get("resourceVersionMatch")
        if match and "resourceVersion" not in query:
            raise ApiFault(422, "resourceVersionMatch is forbidden without resourceVersion")
        self._store.check_not_future(asked)
        return (asked if match == "Exact" else self._store.version), None

    def _resume(self, target: Target, token: _Token) -> tuple[int, Key]:
        if not token.version:
            return self._store.version, token.after
        if token.serial <= self._expired or token.version < self._store.of(target.resource).oldest:
            remainder = _Token(next(self._serials), 0, token.after).text()
            raise ApiFault(410, "the continue token is too old", metadata={"continue": remainder})
        return token.version, token.after


def _key_of(stored: tuple[Key, bytes]) -> Key:
    return stored[0]


def _list_json(target: Target, metadata: Mapping[str, str | int], bodies: list[bytes]) -> bytes:
    resource = target.resource
    if resource.custom:
        bodies = [complete_json(resource, body) for body in bodies]
    return b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        msgspec.json.encode(metadata),
        b",".join(bodies),
    )


def _parsed(text: str) -> _Token:
    try:
        decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(decoded, type=_Token)
    except (binascii.Error, msgspec.MsgspecError, ValueError) as malformed:
        raise ApiFault(400, "continue key is not valid") from malformed


def _version(query: Mapping[str, str]) -> int:
    return _whole(query.get("resourceVersion") or "0")


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ApiFault(400, f"`{text}` is not a whole number")
    return int(text)
