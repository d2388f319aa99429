"""Values that expressions read of a request, and those that pods of one template share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from engine.cel import Program, Reference
from engine.model.pod import Pod
from engine.policy.activation import POD_ATTRIBUTES
from engine.view import is_long

_TEMPLATES: Final = 256  # of one policy; some kilobytes each
_LARGEST_SHAPE: Final = 8_192  # bytes, as of `cached_by_shape`
_FIELD_DEPTH: Final = 2  # of a path such as `pod.labels`


class RequestValues:
    """Values of a request by name, each computed when it is read.

    Attributes:
        activation: what programs get.
        pod: fields of the pod, part of the activation.
        variables: those of the policy, likewise.
        prepared: sources of the programs whose values are there.
        failed: names of variables that have no value.
        keys: of columns, by the expression, see `Plan.key`; and of all that a program reads, by
            its source, see `PolicyContext.key_of`.
        owner: stands for the request whose alone they are by now; None while they are shared.
    """

    __slots__ = ("activation", "failed", "keys", "owner", "pod", "prepared", "variables")

    def __init__(self) -> None:
        self.activation: dict[str, object] = {}
        self.pod: dict[str, object] = {}
        self.variables: dict[str, object] = {}
        self.prepared: set[str] = set()
        self.failed: set[str] = set()
        self.keys: dict[Hashable, str | None] = {}
        self.owner: RequestValues | None = None


class SharedValues:
    """Values that expressions of a policy read of pods alone, shared by pods that agree in them.

    Where a value costs some of the budget or fails they are withdrawn: each request is charged for
    its own, and has the errors of its own.

    Args:
        programs: those of the rules of the policy.
        variables: the programs of its variables.
    """

    def __init__(self, programs: Iterable[Program], variables: Mapping[str, Program]) -> None:
        paths = {each.source: _pod_paths(each, variables) for each in programs}
        known = {source: found for source, found in paths.items() if found is not None}
        self.sources: Final = frozenset(known)
        """Of the programs that read nothing of a request but what is shared."""
        read = sorted(frozenset[Reference]().union(*known.values()))
        self._attributes = tuple(dict.fromkeys(_attribute(path) for path in read if not _key(path)))
        self._entries = tuple((_attribute(path), _key(path)) for path in read if _key(path))
        self._templates: OrderedDict[Hashable, RequestValues] = OrderedDict()

    def of(self, pod: Pod) -> RequestValues:
        """Return the values of a pod."""
        template = self._template(pod)
        values = self._templates.get(template)
        if values is not None:
            self._templates.move_to_end(template)
            return values
        values = RequestValues()
        if pod.shape.size <= _LARGEST_SHAPE and not is_long(template):
            self._templates[template] = values
            if len(self._templates) > _TEMPLATES:
                self._templates.popitem(last=False)
        return values

    def withdraw(self, pod: Pod, values: RequestValues, owner: RequestValues) -> None:
        """Leave values to the request of a pod, whose other values are `owner`."""
        values.owner = owner
        self._templates.pop(self._template(pod), None)

    def _template(self, pod: Pod) -> tuple[Hashable, ...]:
        """Return all that the programs read of a pod."""
        read: list[Hashable] = [getattr(pod, name) for name in self._attributes]
        if self._entries:
            read += [getattr(pod, name).get(key) for name, key in self._entries]
        return tuple(read)


def _pod_paths(program: Program, variables: Mapping[str, Program]) -> frozenset[Reference] | None:
    """Return the paths of a pod that a program reads, also by variables; None if it reads more."""
    paths, left, seen = set[Reference](), [program], set[str]()
    while left:
        for path in left.pop().references:
            root, name = (*path, "")[:2]
            if root == "variables":
                names = {name} if name else variables.keys()
                left.extend(variables[each] for each in names - seen if each in variables)
                seen |= names
            elif root == "pod" and _is_shared(path):
                paths.add(path[: _FIELD_DEPTH + 1])
            elif root != "node":
                return None
    return frozenset(paths)


def _is_shared(path: Reference) -> bool:
    """Return whether what a path leads to is part of a template: a text or a number, not a map."""
    return (
        len(path) >= _FIELD_DEPTH
        and path[1] in POD_ATTRIBUTES
        and (not POD_ATTRIBUTES[path[1]].is_map or len(path) > _FIELD_DEPTH)
    )


def _attribute(path: Reference) -> str:
    return POD_ATTRIBUTES[path[1]].name


def _key(path: Reference) -> str:
    """Return the key that a path has in a map of the pod, "" where it is not one's."""
    return path[_FIELD_DEPTH] if POD_ATTRIBUTES[path[1]].is_map else ""
