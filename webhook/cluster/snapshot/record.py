"""Snapshots of a live cluster: the data that rules can read, by GET alone.

Each kind is consistent as of one moment, kinds of different moments. Objects go to the file page by
page; only the usage of pods, which the API serves as one list, is in memory at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from engine.errors import Diagnostic, StowplanError
from engine.model import api
from engine.model.kinds import KINDS, Kind
from engine.model.kubernetes_version import kubernetes_version_of
from engine.model.pod import TERMINAL_PHASES
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.client.pages import MOST_ATTEMPTS, PagedLists
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.files.json_objects import JsonObject
from webhook.cluster.files.object_file import ObjectFile
from webhook.cluster.objects import ObjectError
from webhook.cluster.server_version import ClusterVersion, read_version
from webhook.cluster.snapshot.anonymous import Anonymizer
from webhook.cluster.timing import DEFAULT_CONFIG, ReflectorConfig

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the name of a kind, the objects read, and the objects there are if known."""

_MOST_PROBLEMS = 20  # of one kind
_NEEDED = frozenset({"nodes", "pods"})
_SECRETIVE = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "k3s.io/node-args",
        "k3s.io/node-env",
        "rke2.io/node-args",
        "rke2.io/node-env",
    }
)
"""Annotations that no snapshot keeps: a copy of the object, or an agent's command line."""


@dataclass(slots=True, kw_only=True)
class KindResult:
    """Result of the snapshot for one kind.

    Attributes:
        name: its name for `kubectl get`.
        objects: number of objects written.
        finished: number of pods left out because they have finished.
        unreadable: number of objects that could not be read.
        problems: mistakes in the first of those.
        error: the failure that left it out; None if it was read to its end.
    """

    name: str
    objects: int = 0
    finished: int = 0
    unreadable: int = 0
    problems: list[Diagnostic] = field(default_factory=list)
    error: ApiError | None = None


class SnapshotError(StowplanError):
    """A required kind could not be read.

    Attributes:
        kind: its name.
        error: the answer of the API server.
    """

    def __init__(self, kind: str, error: ApiError) -> None:
        super().__init__(f"{kind}: {error.message}")
        self.kind = kind
        self.error = error


async def take_snapshot(
    connection: Connection,
    file: ObjectFile,
    *,
    anonymizer: Anonymizer | None = None,
    progress: Progress | None = None,
    config: ReflectorConfig = DEFAULT_CONFIG,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Sequence[KindResult]:
    """Write the objects of every kind; return the result for each.

    Args:
        connection: to the API server; only read from.
        file: where objects go.
        anonymizer: replaces names, if given.
        progress: called after each page.
        config: page size, and pauses after failures.
        sleep: waits for some seconds.

    Raises:
        SnapshotError: nodes or pods cannot be read, or nothing can.
    """
    progress = progress or (lambda *_: None)
    writer = _SnapshotWriter(connection, file, anonymizer, progress, config, sleep)
    await _write_version(connection, file, is_anonymous=anonymizer is not None)
    # Expressions are full of names that no pseudonym can stand for.
    kinds = [kind for kind in KINDS if kind.verbs and not (anonymizer and kind.only_for_policies)]
    return [await writer.write(kind) for kind in kinds]


async def _write_version(connection: Connection, file: ObjectFile, *, is_anonymous: bool) -> None:
    """Write the version of the API server, before the pods that are counted by it."""
    try:
        version = await read_version(connection)
    except (ApiError, msgspec.DecodeError):
        return  # a recording of before had none either
    if is_anonymous:  # the rest may name who built it
        version = "v{}.{}".format(*kubernetes_version_of(version))
    file.add(msgspec.json.encode(ClusterVersion(git_version=version)))


class _SnapshotWriter:
    """Reads and writes kind after kind."""

    def __init__(
        self,
        connection: Connection,
        file: ObjectFile,
        anonymizer: Anonymizer | None,
        progress: Progress,
        config: ReflectorConfig,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._lists = PagedLists(connection, config, sleep)
        self._file = file
        self._anonymizer = anonymizer
        self._progress = progress
        self._encode = msgspec.json.Encoder().encode

    async def write(self, kind: Kind) -> KindResult:
        """Write all objects of a kind, or none of them."""
        start, attempts = self._file.size, 0
        while True:
            result = KindResult(name=kind.name)
            attempts += 1
            try:
                await self._list(kind, result)
            except ApiError as error:
                self._file.truncate(start)
                # Pages are of one resourceVersion, which the API server drops after some minutes.
                if error.status == HTTPStatus.GONE and attempts < MOST_ATTEMPTS:
                    continue
                if kind.name in _NEEDED or error.status == HTTPStatus.UNAUTHORIZED:
                    raise SnapshotError(kind.name, error) from error
                return KindResult(name=kind.name, error=error)
            return result

    async def _list(self, kind: Kind, result: KindResult) -> None:
        decode = msgspec.json.Decoder(kind.wire).decode
        head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}",'.encode()
        read = 0
        # Without the selector for unfinished pods: with one, no page has the number of the rest.
        async for page in self._lists.pages(kind.path):
            for raw in page.items or ():
                try:
                    wire = _named(decode(raw))
                except UNREADABLE as error:
                    _report(result, kind, raw, error)
                else:
                    self._write(kind, wire, head, result)
            read += len(page.items or ())
            token, rest = page.metadata.token, page.metadata.remaining_item_count
            total = read if not token else None if rest is None else read + rest
            self._progress(kind.name, read, total)

    def _write(self, kind: Kind, wire: Any, head: bytes, result: KindResult) -> None:  # noqa: ANN401 - a wire struct of any kind
        """Write an object, in JSON as the API server sent it."""
        if isinstance(wire, api.Pod) and wire.status.phase in TERMINAL_PHASES:
            result.finished += 1
            return
        wire = redact(kind, wire)
        if self._anonymizer is not None:
            wire = self._anonymizer.struct(wire)
        self._file.add(head + self._encode(wire).removeprefix(b"{"))
        result.objects += 1


def redact(kind: Kind, wire: Any) -> Any:  # noqa: ANN401 - a wire struct of any kind, which has metadata
    """Return what a snapshot keeps of an object, without its `apiVersion` and `kind`.

    Decoding has already dropped what no rule can read: environment variables, commands, volumes,
    `managedFields`. This drops what no rule reads of an object that exists, and secrets.
    """
    meta: api.ObjectMeta = wire.metadata
    if not kind.snapshot_metadata:
        meta = api.ObjectMeta(name=meta.name, namespace=meta.namespace)
    elif meta.annotations:
        public = kind.snapshot_annotations
        annotations = {
            name: text
            for name, text in meta.annotations.items()
            if (name not in _SECRETIVE if public is None else name in public)
        }
        meta = msgspec.structs.replace(meta, annotations=annotations or None)
    if isinstance(wire, api.PlacementPolicy):
        return msgspec.structs.replace(wire, metadata=meta, status={})
    if isinstance(wire, api.ElasticQuota):
        return msgspec.structs.replace(wire, metadata=meta, api_version="")
    return msgspec.structs.replace(wire, metadata=meta)


def _named(wire: Any) -> Any:  # noqa: ANN401 - a wire struct of any kind, which has metadata
    if not wire.metadata.name:
        raise ObjectError(("metadata",), "it has no `name`")
    return wire


def _report(
    result: KindResult, kind: Kind, raw: msgspec.Raw, error: ValueError | RecursionError
) -> None:
    """Record an object that cannot be read."""
    result.unreadable += 1
    found = JsonObject(kind.name, (), kind.group, kind.kind, len(raw), raw)
    room = _MOST_PROBLEMS - len(result.problems)
    result.problems += decode_errors(found, kind.wire, error)[:room]
