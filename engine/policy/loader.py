"""Policy files, found in folders and loaded together as one set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from engine.documents import MOST_BYTES, Document, document_of, read_documents
from engine.errors import Diagnostic, InvalidFileError
from engine.model.policy_resource import PolicyKind, PolicyResource, policy_name
from engine.policy.compile import compile_policy, is_policy
from engine.policy.policy_set import CompiledPolicy, PolicySet

CASES_FILE: Final = "cases.yaml"
"""The name of the file that holds the tests of the policies beside it."""

_OF_OTHERS: Final = frozenset(
    {
        "kustomization.yaml",
        "kustomization.yml",
        "Chart.yaml",
        "values.yaml",
        "values.schema.json",
    }
)
"""Files of Kustomize and Helm that folders have beside what they deploy; named alone they count."""

_MAX_ATTEMPTS: Final = 10
_LISTS = frozenset({"List", *(f"{kind}List" for kind in PolicyKind)})
_ENDINGS = frozenset({".yaml", ".yml", ".json"})


def load_policies(
    paths: Iterable[Path], texts: Mapping[str, bytes] = MappingProxyType({})
) -> PolicySet:
    """Return all policies of files and folders, compiled.

    A file may hold several documents. Folders are read recursively, without hidden files and
    folders, which Kubernetes puts beside the links of a mounted ConfigMap.

    Args:
        paths: the files and folders.
        texts: the contents of further files, by the names that diagnostics give them.

    Raises:
        InvalidFileError: there are mistakes; carries every mistake of every file.
    """
    read, problems = _read(tuple(paths))
    contents = {**{str(file): content for file, content in read.items()}, **texts}
    policies: list[CompiledPolicy] = []
    names: dict[str, str] = {}
    for file, content in contents.items():
        try:
            documents = _policies_in(read_documents(content, file))
            if not documents:
                raise _unusable(file, "holds no policy")
        except InvalidFileError as error:
            problems += error.problems
            continue
        mistakes: list[Diagnostic] = []
        for document in documents:
            policy, found = compile_policy(document)
            mistakes += found
            if is_policy(document):
                mistakes += _name_taken(document, names)
            if policy is not None:
                policies.append(policy)
        problems += sorted(mistakes, key=lambda problem: (problem.line, problem.column))
    if problems:
        raise InvalidFileError(problems)
    return PolicySet(policies)


def _read(paths: tuple[Path, ...]) -> tuple[dict[Path, bytes], list[Diagnostic]]:
    """Return the contents of all policy files, and the problems of those that cannot be read.

    A mounted ConfigMap changes all its files at once, by a change of one link. INVARIANT: every
    path led to the same file before and after all of them were read, so no file was read before
    such a change and another after it.
    """
    files = _Files(paths)
    for _ in range(_MAX_ATTEMPTS):
        contents: dict[Path, bytes] = {}
        problems = list(files.problems)
        for file in files.found.values():
            try:
                contents[file] = content_of(file)
            except InvalidFileError as error:
                problems += error.problems
        before, files = files, _Files(paths)
        if (files.found, files.problems) == (before.found, before.problems):
            return contents, problems
    raise InvalidFileError([Diagnostic(file=str(paths[0]), message="changes while it is read")])


def content_of(file: Path) -> bytes:
    """Return the content of a file, or enough of it to see that it is too large.

    Raises:
        InvalidFileError: it does not exist, is not a file, or may not be read.
    """
    try:
        if file.exists() and not file.is_file():
            raise _unusable(file, "not a regular file")
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unusable(file, f"cannot be read: {_reason(error)}") from error


class _Files:
    """Policy files, each once, in the order of the paths that led to them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.found: dict[str, Path] = {}  # path by the same path with links resolved
        self.problems: list[Diagnostic] = []  # folders that cannot be read
        self._folders: set[str] = set()
        for path in paths:
            self._add(path)

    def _add(self, path: Path) -> None:
        if not os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir it never raises
            self._add_file(path)
            return
        for folder, folders, names in os.walk(path, onerror=self._failed, followlinks=True):
            folders[:] = sorted(
                name for name in folders if not name.startswith(".") and self._is_new(folder, name)
            )
            for name in sorted(names):
                is_policy = Path(name).suffix in _ENDINGS and name not in _OF_OTHERS
                if is_policy and not name.startswith("."):
                    self._add_file(Path(folder, name))

    def _add_file(self, path: Path) -> None:
        if path.name != CASES_FILE:
            self.found.setdefault(os.path.realpath(path), path)

    def _is_new(self, folder: str, name: str) -> bool:
        """Return whether a folder is visited for the first time, so that links make no loops."""
        real = os.path.realpath(Path(folder, name))
        new = real not in self._folders
        self._folders.add(real)
        return new

    def _failed(self, error: OSError) -> None:
        message = f"cannot be read: {_reason(error)}"
        self.problems.append(Diagnostic(file=str(error.filename), message=message))


def _name_taken(document: Document, names: dict[str, str]) -> list[Diagnostic]:
    """Return the problem of a policy whose name is taken; remember the name if it is new."""
    name = _name_of(document)
    if not name:
        return []
    if name not in names:
        place = document.place(("metadata", "name"))
        names[name] = f"{place.file}:{place.line}"
        return []
    message = f"there is a policy `{name}` in {names[name]} already"
    return [document.problem(("metadata", "name"), message)]


def _name_of(document: Document) -> str:
    """Return the name by which a policy is known, "" where it has none that can be read."""
    value = document.value if isinstance(document.value, dict) else {}
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str):
        return ""
    is_namespaced = value.get("kind") == PolicyKind.NAMESPACED.value
    return policy_name(namespace, name) if is_namespaced and isinstance(namespace, str) else name


def _policies_in(documents: Iterable[Document]) -> list[Document]:
    """Return documents, with those in lists as `kubectl get -o yaml` prints them."""
    found: list[Document] = []
    for document in documents:
        kind = document.value.get("kind") if isinstance(document.value, dict) else None
        found += document.items(("items",)) if kind in _LISTS else [document]
    return found


def _unusable(file: Path | str, message: str) -> InvalidFileError:
    return InvalidFileError([Diagnostic(file=str(file), message=message)])


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


MOST_SPEC_BYTES: Final = 64 * 1024
"""The largest spec that is compiled, as JSON: it takes a second or so; the shipped ones have 1 KiB.

Files may be larger: they belong to whoever installs us. Resources may be written by teams.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledResource:
    """What became of a policy of the API.

    Attributes:
        resource: as it was read.
        policy: None where there are problems.
        problems: every mistake in it, by line and column. The lines are those of the object as YAML
            in the layout of `kubectl get -o yaml`, without what the API server adds; `field` is the
            path of the value.
    """

    resource: PolicyResource
    policy: CompiledPolicy | None
    problems: tuple[Diagnostic, ...] = ()


def compile_resource(resource: PolicyResource) -> CompiledResource:
    """Return the policy of an object of the API, or every mistake in it; never raises."""
    try:
        document = document_of(resource.manifest, resource.path)
    except InvalidFileError as error:
        return CompiledResource(resource=resource, policy=None, problems=error.problems)
    if len(msgspec.json.encode(resource.spec)) > MOST_SPEC_BYTES:
        message = f"the spec is larger than {MOST_SPEC_BYTES} bytes"
        problem = Diagnostic(file=resource.path, field="spec", message=message)
        return CompiledResource(resource=resource, policy=None, problems=(problem,))
    policy, problems = compile_policy(document)
    ordered = sorted(problems, key=lambda problem: (problem.line, problem.column))
    return CompiledResource(resource=resource, policy=policy, problems=tuple(ordered))
