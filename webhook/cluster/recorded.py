"""A cluster recorded in files by `kubectl get ... -o yaml` or `-o json`.

    kubectl get nodes,pods,namespaces,elasticquotas,nodemetrics -A -o json > cluster.json
    kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes > node-usage.json
    kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods > pod-usage.json

Kinds that no rule reads are skipped; an object with a mistake is reported and left out. YAML takes
twenty times as long as JSON: 150,000 pods need JSON.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from engine.errors import Diagnostic, InvalidFileError, counted
from engine.model import api
from engine.model.kinds import Kind
from engine.model.kubernetes_version import kubernetes_version_of
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import ClusterState
from webhook.cluster.object_file import read_json, read_object_file, read_yaml
from webhook.cluster.objects import NO_KIND, UNREADABLE, ApiObject, decode_errors
from webhook.cluster.server_version import CLUSTER_VERSION, ClusterVersion
from webhook.cluster.watch.event_applier import EventApplier, PodObserver


class RecordedPods:
    """An observer that keeps the pods of a recording as JSON."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - of the protocol
        """Keep a pod."""
        self._texts[pod.key] = bytes(raw)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep a pod no longer."""
        self._texts.pop(f"{namespace}/{name}", None)

    async def read(self, namespace: str, name: str) -> bytes | None:
        """Return a pod as JSON, None where there is none."""
        return self._texts.get(f"{namespace}/{name}")


Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with the bytes read so far and the bytes in all."""

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_PROBLEMS = 100
_MOST_UNLISTED = 1_000  # before the first object: it is another kind of file then
_PROGRESS_EVERY = 256  # objects
_SNAPSHOT_HINT = "`stowplan snapshot` records a cluster"
_MOST_KINDS_NAMED = 3
_LOOKS_LIKE_JSON = re.compile(rb"\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A cluster read from files."""

    state: ClusterState  # the cluster
    # the newest moment in any object, 0 if none has one. Ages of measurements count at that moment:
    # the recording does not grow older
    recorded_at: Micros
    loaded: Mapping[str, int]  # number of objects in `state` by kind
    skipped: Mapping[str, int]  # number of objects of each other kind, such as `Deployment.apps`
    problems: tuple[Diagnostic, ...] = ()  # mistakes in the objects that were left out
    # objects of each kind that were recorded again; the last of each counts
    repeated: Mapping[str, Sequence[str]] = field(default_factory=dict)


def load_recorded(
    paths: Sequence[Path],
    *,
    progress: Progress | None = None,
    observers: Sequence[PodObserver] = (),
) -> Recording:
    """Return the cluster in files, or in all YAML and JSON files of folders.

    Of several versions of an object the last counts. Usage by Koordinator's NodeMetric wins over
    that by metrics.k8s.io.

    Args:
        paths: files and folders.
        progress: called after every few objects.
        observers: called for each pod; the cluster keeps only what its columns need.

    Raises:
        InvalidFileError: a file cannot be read, or is neither YAML nor JSON with objects of
            Kubernetes; carries all such files. Or their objects are none of a cluster.
    """
    files, unusable = _files(paths)
    loader = _Loader(progress, sum(map(_size, files)), observers)
    for path in files:
        try:
            loader.read(path)
        except InvalidFileError as error:
            unusable += error.problems
    if unusable:
        raise InvalidFileError(unusable)
    return loader.finished(", ".join(map(str, paths)))


def read_folder(path: Path) -> Iterator[ApiObject | Diagnostic]:
    """Yield the objects in a file, or in all YAML and JSON files of a folder; see `read_objects`.

    Raises:
        InvalidFileError: as there, or the folder has no such file.
    """
    files, unusable = _files([path])
    if unusable:
        raise InvalidFileError(unusable)
    for file in files:
        yield from read_objects(file)


def read_objects(path: Path) -> Iterator[ApiObject | Diagnostic]:
    """Yield the objects of any kind in a file, and the mistakes in those that cannot be read.

    Raises:
        InvalidFileError: the file cannot be read, or is neither YAML nor JSON with objects of
            Kubernetes.
    """
    yield from _objects(_content(path), str(path))


class _Loader:
    """Reads file after file, and counts objects and mistakes."""

    def __init__(
        self, progress: Progress | None, total: int, observers: Sequence[PodObserver]
    ) -> None:
        self._applier = EventApplier(observers=observers)
        self._is_observed = bool(observers)
        self._loaded: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._problems: list[Diagnostic] = []
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        self._repeated: defaultdict[str, list[str]] = defaultdict(list)
        self._unlisted = 0
        self._progress = progress or (lambda _done, _total: None)
        self._done, self._total = 0, total

    def read(self, path: Path) -> None:
        """Apply the objects of a file."""
        try:
            objects = read_object_file(path)
            if objects is None:
                data = _content(path)
                self._apply_all(_objects(data, str(path)))
                size = len(data)
            else:
                self._apply_all(objects)
                size = _size(path)
        except OSError as error:
            raise InvalidFileError([_unreadable(path, error)]) from error
        self._done += size
        self._progress(self._done, self._total)

    def _apply_all(self, objects: Iterable[ApiObject | Diagnostic]) -> None:
        for number, found in enumerate(objects):
            if isinstance(found, Diagnostic):
                self._report([found])
                continue
            self._apply(found)
            if number % _PROGRESS_EVERY == 0:
                self._progress(self._done + found.end, self._total)

    def finished(self, name: str) -> Recording:
        if self._unlisted:
            message = counted(self._unlisted, "more mistake")
            self._problems.append(Diagnostic(file="...", message=message))
        if not self._loaded and (self._skipped or self._problems):
            raise InvalidFileError([*self._problems, self._no_cluster(name)])
        return Recording(
            state=self._applier.finished(),
            recorded_at=self._applier.newest,
            loaded=self._loaded,
            skipped=self._skipped,
            problems=tuple(self._problems),
            repeated=dict(self._repeated),
        )

    def _no_cluster(self, name: str) -> Diagnostic:
        """Return the mistake that nothing of a cluster can be read, and what there is."""
        kinds = ", ".join(kind for kind, _ in self._skipped.most_common(_MOST_KINDS_NAMED))
        others = f": it has {kinds}" if kinds else ""
        message = f"no node, pod or other object that a decision reads{others}"
        return Diagnostic(file=name, message=message, hint=_SNAPSHOT_HINT)

    def _apply(self, found: ApiObject) -> None:
        if not found.kind:
            self._report([found.problem((), NO_KIND, "")])
            return
        applier = self._applier.by_kind.get((found.group, found.kind))
        if (found.group, found.kind) == CLUSTER_VERSION:
            self._note_version(found)
            return
        if applier is None:
            self._skipped[f"{found.kind}.{found.group}" if found.group else found.kind] += 1
            return
        try:
            wire: Any = found.decode(applier.kind.wire)  # of a table of kinds
            if self._is_observed and applier.prepare is not None:
                applier.prepare(wire, msgspec.Raw(msgspec.json.encode(found.plain())))()
            else:
                applier.apply(wire)
        except UNREADABLE as error:
            self._report(decode_errors(found, applier.kind.wire, error))
        else:
            self._loaded[found.kind] += 1
            self._note_name(applier.kind, wire.metadata)

    def _note_name(self, kind: Kind, metadata: api.ObjectMeta) -> None:
        names, name = self._names[kind.name], metadata.name
        if metadata.namespace:
            name = f"{metadata.namespace}/{name}"
        if name in names:
            self._repeated[kind.kind].append(name)
        names.add(name)

    def _note_version(self, found: ApiObject) -> None:
        try:
            text = found.decode(ClusterVersion).git_version
        except UNREADABLE as error:
            self._report(decode_errors(found, ClusterVersion, error))
        else:
            self._applier.state.set_kubernetes(kubernetes_version_of(text))

    def _report(self, problems: Sequence[Diagnostic]) -> None:
        room = _MOST_PROBLEMS - len(self._problems)
        self._problems += problems[:room]
        self._unlisted += max(0, len(problems) - room)
        if self._unlisted > _MOST_UNLISTED and not self._loaded and not self._skipped:
            first = self._problems[0]
            raise InvalidFileError([first, self._no_cluster(first.file)])


def _files(paths: Iterable[Path]) -> tuple[list[Path], list[Diagnostic]]:
    """Return the files to read, and the mistakes of folders that have none."""
    files: list[Path] = []
    problems = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(
                file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file()
            )
        except OSError as error:
            problems.append(_unreadable(path, error))
            continue
        if not inside:
            message = f"the folder has no file that ends in {', '.join(_SUFFIXES)}"
            problems.append(Diagnostic(file=str(path), message=message))
        files += inside
    return files, problems


def _size(path: Path) -> int:
    """Return the size of a file, 0 if it has none or cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _content(path: Path) -> bytes:
    """Return the content of a file, in UTF-8 if it is a text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidFileError([_unreadable(path, error)]) from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell writes
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise InvalidFileError([Diagnostic(file=str(path), message="the file is empty")])
    return data


def _objects(data: bytes, file: str) -> Iterator[ApiObject | Diagnostic]:
    if _LOOKS_LIKE_JSON.match(data):
        return read_json(data, file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problem = Diagnostic(file=file, message="neither YAML nor JSON: not valid UTF-8")
        raise InvalidFileError([problem]) from error
    return read_yaml(text, file)


def _unreadable(path: Path, error: OSError) -> Diagnostic:
    reason = (error.strerror or str(error)).lower()
    return Diagnostic(file=str(path), message=f"cannot be read: {reason}")
