"""PriorityClasses whose tolerations are in vain, where pods may be evicted for others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from engine.model import api
from engine.model.kinds import PRIORITY_CLASSES
from engine.model.never_held import SYSTEM_PRIORITY
from engine.model.priority_class import NEVER, PreemptionToleration, toleration_of
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
from webhook.doctor.objects import ObjectList

_MOST_NAMED: Final = 3


async def priority_classes(installation: Installation) -> AsyncIterator[Finding]:
    """Find what is said of preemption, and does not hold."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    setting = deployment.spec.template.spec.setting
    evicts = setting("STOWPLAN_PREEMPTION") == "true" or setting("STOWPLAN_QUOTA_MODE") == "Queue"
    if setting("STOWPLAN_HOLD") != "true" or not evicts:
        return
    listed = await installation.read(PRIORITY_CLASSES.path, ObjectList[api.PriorityClass])
    users = [each for each in listed.items if each.value < SYSTEM_PRIORITY]
    findings = list(_findings(users))
    for finding in findings:
        yield finding
    if not findings:
        yield Finding(Level.OK, "what PriorityClasses say of preemption holds")


def _findings(classes: Sequence[api.PriorityClass]) -> Iterator[Finding]:
    for each in classes:
        name = each.metadata.name
        try:
            toleration = toleration_of(each.value, each.metadata.annotations or {})
        except ValueError as error:
            yield Finding(
                Level.WARNING,
                f"PriorityClass {name} tolerates no preemption: {error}",
                "write whole numbers in quotes",
            )
            continue
        rivals = [other for other in classes if _ignores(other, each, toleration)]
        if rivals:
            names = ", ".join(other.metadata.name for other in rivals[:_MOST_NAMED])
            more = len(rivals) - _MOST_NAMED
            yield Finding(
                Level.WARNING,
                f"PriorityClass {name} tolerates preemption, of which the scheduler knows nothing:"
                f" it preempts for {names}" + (f" and {more} more" if more > 0 else ""),
                "give these `preemptionPolicy: Never` and the annotation"
                " `stowplan.dev/preemption: WhileHeld`",
            )


def _ignores(
    other: api.PriorityClass, own: api.PriorityClass, toleration: PreemptionToleration
) -> bool:
    """Return whether the scheduler evicts pods of a class for those of another it tolerates."""
    is_tolerated = own.value < other.value < toleration.minimum_preemptable_priority
    return toleration.seconds != 0 and is_tolerated and other.preemption_policy != NEVER
