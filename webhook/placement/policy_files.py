"""The policies of files: the last valid set of them, all or none."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from engine.errors import Diagnostic, InvalidFileError
from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.policy import (
    MOST_COST_OF_A_NAMESPACE,
    TOO_COSTLY_HINT,
    CompiledPolicy,
    CompiledResource,
    PolicySet,
    compile_resource,
    load_policies,
    too_costly,
)

MOST_PER_NAMESPACE: Final = 16
"""Policies of a namespace that are taken: they cost time and memory that all namespaces share."""

_Key: TypeAlias = tuple[str, str]  # kind and name

_log = logging.getLogger(__name__)


class Acceptance(StrEnum):
    """Whether a policy of the API is in force as it was last written, or why not."""

    ACCEPTED = "Accepted"
    INVALID = "Invalid"  # it has mistakes: the last valid one is in force, if there was any
    NAME_TAKEN = "NameTaken"  # by a policy in a file
    TOO_MANY = "TooMany"  # policies of its namespace; older ones come first
    TOO_COSTLY = "TooCostly"  # with those of its namespace that come first


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStanding:
    """What became of a policy of the API on this replica."""

    resource: PolicyResource  # the generation that was judged, with the latest status
    acceptance: Acceptance  # whether it is in force like that
    problems: tuple[Diagnostic, ...] = ()  # every mistake in it
    policy: CompiledPolicy | None = None  # what is in force of it, None for nothing
    policy_generation: int = 0  # the generation that is
    excess: str = ""  # what it costs where that is too much; "" where it is not

    @property
    def message(self) -> str:
        """What its author should know of that, besides the mistakes."""
        match self.acceptance:
            case Acceptance.ACCEPTED:
                return "in force"
            case Acceptance.NAME_TAKEN:
                return "a policy in a file has this name, and is in force instead: rename one"
            case Acceptance.TOO_MANY:
                return (
                    f"{MOST_PER_NAMESPACE} policies of namespace `{self.resource.namespace}` are"
                    " taken, the oldest ones: delete some, or join them to one"
                )
            case Acceptance.TOO_COSTLY:
                return f"{self.excess}; {TOO_COSTLY_HINT}"
            case Acceptance.INVALID:
                kept = f"generation {self.policy_generation} stays" if self.policy else "nothing is"
                return f"it has mistakes; {kept} in force"


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A policy as it was last compiled, and as it was last valid."""

    latest: CompiledResource
    valid: CompiledResource | None

    def is_of(self, resource: PolicyResource) -> bool:
        """Return whether it was made of this spec of this object; others may share the name."""
        known = self.latest.resource
        return known.uid == resource.uid and known.spec is resource.spec


class PolicyResources:
    """The policies that the API server holds, as a watch shows them."""

    def __init__(
        self, compile_one: Callable[[PolicyResource], CompiledResource] = compile_resource
    ) -> None:
        self.changed = asyncio.Event()  # set whenever `compile_changed` has anything to do
        self._compile_one = compile_one
        self._known: dict[_Key, PolicyResource] = {}
        self._compiled: dict[_Key, _Compiled] = {}

    def set(self, resource: PolicyResource) -> None:
        """Take a policy that was added or changed; a change of its status alone is no work."""
        key = (resource.kind.value, resource.policy_name)
        known = self._known.get(key)
        if known is not None and known.uid == resource.uid and known.spec == resource.spec:
            self._known[key] = replace(resource, spec=known.spec)
            return
        self._known[key] = resource
        self.changed.set()

    def delete(self, kind: PolicyKind, policy_name: str) -> None:
        if self._known.pop((kind.value, policy_name), None) is not None:
            self.changed.set()

    async def compile_changed(self) -> None:
        """Compile the policies that have changed since the last time, off the event loop."""
        self.changed.clear()
        due = {
            key: resource
            for key, resource in self._taken().items()
            if (known := self._compiled.get(key)) is None or not known.is_of(resource)
        }
        made = await asyncio.to_thread(self._compile_all, tuple(due.values()))
        for (key, resource), latest in zip(due.items(), made, strict=True):
            self._compiled[key] = _Compiled(latest, self._valid(key, resource, latest))
        for key in self._compiled.keys() - self._taken().keys():
            del self._compiled[key]

    def standings(self, file_names: AbstractSet[str]) -> tuple[ResourceStanding, ...]:
        """Return what became of each policy; of one that has not been compiled yet, nothing."""
        taken = self._taken()
        found = [_too_many(resource) for key, resource in self._known.items() if key not in taken]
        costs = Counter[str]()  # of each namespace, those first that are the oldest
        for key, resource in taken.items():
            compiled = self._compiled.get(key)
            if compiled is not None and compiled.latest.resource.uid == resource.uid:
                standing = _standing(resource, compiled, file_names)
                cost = standing.policy.cost if standing.policy and resource.namespace else 0
                others = costs[resource.namespace]
                if cost + others > MOST_COST_OF_A_NAMESPACE:
                    found.append(_too_costly(standing, too_costly(cost, others)))
                else:
                    costs[resource.namespace] += cost
                    found.append(standing)
        return tuple(found)

    def _taken(self) -> dict[_Key, PolicyResource]:
        """Return the policies that are compiled: of each namespace the oldest."""
        in_namespace = Counter[str]()
        taken = {}
        for resource in sorted(self._known.values(), key=lambda each: (each.created, each.name)):
            if resource.namespace:
                in_namespace[resource.namespace] += 1
            if in_namespace[resource.namespace] <= MOST_PER_NAMESPACE:
                taken[resource.kind.value, resource.policy_name] = resource
        return taken

    def _valid(
        self, key: _Key, resource: PolicyResource, latest: CompiledResource
    ) -> CompiledResource | None:
        """Return the last valid generation of an object."""
        if latest.policy is not None:
            return latest
        for problem in latest.problems:
            _log.warning("a policy is not accepted: %s", problem)
        before = self._compiled.get(key)
        is_same = before is not None and before.latest.resource.uid == resource.uid
        return before.valid if before is not None and is_same else None

    def _compile_all(self, resources: Sequence[PolicyResource]) -> list[CompiledResource]:
        return [self._compile_one(resource) for resource in resources]


def _standing(
    resource: PolicyResource, compiled: _Compiled, file_names: AbstractSet[str]
) -> ResourceStanding:
    judged, valid = compiled.latest, compiled.valid
    if resource.policy_name in file_names:
        acceptance, valid = Acceptance.NAME_TAKEN, None
    else:
        acceptance = Acceptance.INVALID if judged.problems else Acceptance.ACCEPTED
    return ResourceStanding(
        resource=replace(judged.resource, version=resource.version, status=resource.status),
        acceptance=acceptance,
        problems=judged.problems,
        policy=valid.policy if valid else None,
        policy_generation=valid.resource.generation if valid else 0,
    )


def _too_many(resource: PolicyResource) -> ResourceStanding:
    return ResourceStanding(resource=resource, acceptance=Acceptance.TOO_MANY)


def _too_costly(standing: ResourceStanding, excess: str) -> ResourceStanding:
    """Return the standing of a policy of which nothing is in force, whatever generation it is."""
    return ResourceStanding(
        resource=standing.resource, acceptance=Acceptance.TOO_COSTLY, excess=excess
    )


class PolicyFiles:
    """Policy files that may change; an invalid change leaves the last valid set.

    Attributes:
        current: the last valid set.
    """

    def __init__(self, paths: Sequence[Path], *, may_start_empty: bool = False) -> None:
        self._paths = paths
        self.last_error = ""  # the error of the last load; empty if it succeeded
        self.is_loaded = True  # whether there was a valid set yet
        try:
            self.current = load_policies(paths)
        except InvalidFileError as error:
            if not may_start_empty:
                raise
            self.current = PolicySet()
            self.is_loaded = False
            self.last_error = str(error)
            _log.error(
                "no policy is in force, and this replica not ready, until this is fixed: %s", error
            )

    async def load(self) -> PolicySet | None:
        """Load the files again, off the event loop; return their policies, None if invalid."""
        try:
            return await asyncio.to_thread(load_policies, self._paths)
        except InvalidFileError as error:
            self.last_error = str(error)
            stay = "the last valid ones stay in force" if self.is_loaded else "none is in force"
            _log.error("policies not reloaded, %s: %s", stay, error)
            return None

    def use(self, policies: PolicySet) -> None:
        """Take the policies that were loaded as the valid ones."""
        self.current, self.is_loaded, self.last_error = policies, True, ""
