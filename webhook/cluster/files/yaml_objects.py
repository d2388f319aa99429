"""Objects in YAML, in the form of `kubectl get -o yaml`.

A list is read item by item, so that memory depends on the largest object, not on the file. YAML
takes about 2 ms for a pod of 4 KB, a hundred times as long as JSON.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import yaml

from engine.documents import (
    Composer,
    Document,
    MapNode,
    Node,
    ScalarNode,
    Source,
    TooDeepError,
    fatal_problem,
)
from engine.errors import Diagnostic, InvalidFileError
from webhook.cluster.objects import (
    NO_KIND,
    NO_OBJECT,
    Path,
    group_of,
    item_kind,
    path_text,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class YamlObject:
    """An `ApiObject` in YAML; `place` is the path to it from the top of its document."""

    document: Document
    place: Path
    group: str
    kind: str
    end: int

    def decode(self, kind: type[_T]) -> _T:
        """Return the object as a wire struct."""
        return msgspec.convert(self.document.value, type=kind)

    def plain(self) -> object:
        """Return the object as dicts, lists and scalars."""
        return self.document.value

    def problem(self, path: Path, message: str, hint: str) -> Diagnostic:
        """Return a mistake at one of its values."""
        place = path_text((*self.place, *path))
        located = f"{place}: {message}" if place else message
        return self.document.problem(path, located, hint=hint)


def read_yaml(text: str, file: str) -> Iterator[YamlObject | Diagnostic]:
    """Yield the objects in a YAML text, and the mistakes in those that cannot be read.

    Raises:
        InvalidFileError: it is not YAML, or holds a document that is not an object of Kubernetes.
    """
    source = Source(file, text)
    composer = Composer(source)
    try:
        for event in composer.root_events():
            if isinstance(event, yaml.MappingStartEvent):
                yield from _objects(composer, source)
                continue
            root = composer.node(event, 1)
            if not isinstance(root, ScalarNode) or not root.plain or root.text:
                raise InvalidFileError([source.problem_at(root.index, NO_OBJECT)])
    except (yaml.YAMLError, TooDeepError) as error:
        raise InvalidFileError([*composer.problems, fatal_problem(source, error)]) from error


def _objects(composer: Composer, source: Source) -> Iterator[YamlObject | Diagnostic]:
    """Yield the objects of a document that has begun: the items of a list, or a single object."""
    fields: list[tuple[ScalarNode, Node]] = []
    unnamed: list[YamlObject] | None = None
    for key, value in composer.entries(1):
        if key.text == "items" and isinstance(value, yaml.SequenceStartEvent):
            unnamed = yield from _items(composer, source)
        else:
            fields.append((key, composer.node(value, 2)))
    start = fields[0][0].index if fields else 0
    head = _object(MapNode(start, tuple(fields)), (), composer, source)
    if isinstance(head, list):
        yield from head
    elif not head.kind:
        raise InvalidFileError([source.problem_at(start, NO_KIND)])
    elif unnamed is None:
        yield head
    else:
        for item in unnamed:
            yield replace(item, group=head.group, kind=item_kind(head.kind))


def _items(
    composer: Composer, source: Source
) -> Generator[YamlObject | Diagnostic, None, list[YamlObject]]:
    """Yield the items of a list that has begun; return those that leave their kind to the list.

    The list names it at its end, so they wait.
    """
    unnamed = []
    for number, event in enumerate(composer.events):
        if isinstance(event, yaml.SequenceEndEvent):
            break
        found = _object(composer.node(event, 3), ("items", number), composer, source)
        if isinstance(found, list):
            yield from found
        elif found.kind:
            yield found
        else:
            unnamed.append(found)
    return unnamed


def _object(
    root: Node, place: Path, composer: Composer, source: Source
) -> YamlObject | list[Diagnostic]:
    """Return an object, or the mistakes that composing it found."""
    problems, composer.problems = composer.problems, []
    if problems:
        return problems
    try:
        document = Document(source, root)
    except InvalidFileError as error:
        return list(error.problems)
    fields = document.value if isinstance(document.value, dict) else {}
    api_version, kind = fields.get("apiVersion"), fields.get("kind")
    return YamlObject(
        document=document,
        place=place,
        group=group_of(api_version) if isinstance(api_version, str) else "",
        kind=kind if isinstance(kind, str) else "",
        end=root.index,
    )
