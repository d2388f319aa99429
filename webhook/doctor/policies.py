"""Policies of the API: whether there can be any, and which are not in force as written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from engine.errors import counted
from engine.model import api
from engine.model.api import PolicyMeta
from engine.model.kinds import PRIORITY_CLASSES, WATCHED_FOR_POLICIES, Kind
from engine.model.pod import SYSTEM_PRIORITY
from engine.model.pod_classes import NEVER, PreemptionToleration, toleration_of
from engine.model.policy_resource import policy_name
from webhook.doctor.findings import Finding, ok, some, warning
from webhook.doctor.installation import Installation
from webhook.doctor.objects import ObjectList

_MOST_NAMED: Final = 5
_ACCEPTED: Final = "Accepted"
_DEGRADED: Final = "Degraded"


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class _Status(msgspec.Struct):
    conditions: tuple[_Condition, ...] = ()


class _Policy(msgspec.Struct):
    metadata: PolicyMeta = PolicyMeta()
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def name(self) -> str:
        return policy_name(self.metadata.namespace, self.metadata.name)

    def condition(self, kind: str) -> _Condition | None:
        """Return a condition of the generation that there is, None where nobody has judged it."""
        return next(
            (
                each
                for each in self.status.conditions
                if each.type == kind and each.observed_generation == self.metadata.generation
            ),
            None,
        )


def policies(installation: Installation) -> Iterator[Finding]:
    """Find policies of the API that are not in force, or do less than they should."""
    for kind in WATCHED_FOR_POLICIES:
        found = installation.find(kind.path, ObjectList[_Policy])
        if found is None:
            yield warning(
                f"the API server has no {kind.plural}: policies come from files alone",
                "`crds.placementPolicy.install: IfAbsent` installs them, or set"
                " `policies.resources.enabled: false`",
            )
        else:
            yield from _judged(kind, found.items)


def _judged(kind: Kind, found: tuple[_Policy, ...]) -> Iterator[Finding]:
    """Yield what is wrong with policies of a kind, or that nothing is."""
    accepted = [(each.name, each.condition(_ACCEPTED)) for each in found]
    refused = [(name, told) for name, told in accepted if told and told.status != "True"]
    unseen = [name for name, told in accepted if told is None]
    for name, condition in refused[:_MOST_NAMED]:
        message = " ".join(condition.message.splitlines()[:2])
        yield warning(
            f"{kind.kind} {name} is not in force as it was written ({condition.reason}): {message}",
            f"`kubectl describe {kind.plural} {name.rpartition('/')[2]}` tells all of it",
        )
    if len(refused) > _MOST_NAMED:
        more = counted(len(refused) - _MOST_NAMED, f"more {kind.kind}", f"more {kind.plural}")
        yield warning(f"and {more}")
    if unseen:
        yield warning(
            f"{counted(len(unseen), f'{kind.kind} has', f'{kind.plural} have')} no status, such as"
            f" {unseen[0]}",
            "the leader writes it within seconds: see the replicas and the rights",
        )
    doubts = [(each.name, each.condition(_DEGRADED)) for each in found]
    degraded = [(name, told) for name, told in doubts if told and told.status == "True"]
    for name, condition in degraded[:_MOST_NAMED]:
        first = condition.message.partition("\n")[0]
        yield warning(f"{kind.kind} {name} is degraded ({condition.reason}): {first}")
    if not (refused or unseen or degraded):
        policies = counted(len(found), kind.kind, kind.plural)
        yield ok(f"{policies}, all in force")


def priority_classes(installation: Installation) -> Iterator[Finding]:
    """Find what is said of preemption, and does not hold."""
    listed = installation.read(PRIORITY_CLASSES.path, ObjectList[api.PriorityClass])
    findings = list(_findings([each for each in listed.items if each.value < SYSTEM_PRIORITY]))
    yield from findings
    if not findings:
        yield ok("what PriorityClasses say of preemption holds")


def _findings(classes: Sequence[api.PriorityClass]) -> Iterator[Finding]:
    for each in classes:
        name = each.metadata.name
        try:
            toleration = toleration_of(each.value, each.metadata.annotations or {})
        except ValueError as error:
            yield warning(
                f"PriorityClass {name} tolerates no preemption: {error}",
                "write whole numbers in quotes",
            )
            continue
        rivals = [other.metadata.name for other in classes if _ignores(other, each, toleration)]
        if rivals:
            yield warning(
                f"PriorityClass {name} tolerates preemption, of which the scheduler knows nothing:"
                f" it preempts for {some(rivals)}",
                "give these `preemptionPolicy: Never` and the annotation"
                " `stowplan.dev/preemption: WhileHeld`",
            )


def _ignores(
    other: api.PriorityClass, own: api.PriorityClass, toleration: PreemptionToleration
) -> bool:
    """Return whether the scheduler evicts pods of a class for those of another it tolerates."""
    is_tolerated = own.value < other.value < toleration.minimum_preemptable_priority
    return toleration.seconds != 0 and is_tolerated and other.preemption_policy != NEVER
