"""What is missing for a gang to start, beside nodes for its members."""

from __future__ import annotations

from engine.gang import MatchPolicy, count_members, min_resources_gap
from engine.model.quantity import amount_text
from engine.view import ClusterState
from webhook.controllers.gang.gang_unit import GangUnit
from webhook.placement.gang_members import GangMembers


def lacking_resources(unit: GangUnit, state: ClusterState, members: GangMembers) -> str:
    """Return what all nodes together lack of what gangs say that they need, "" for nothing."""
    view = state.view()
    for gang in unit.gangs:
        running = filter(None, (state.placement(each.key) for each in members.of(gang.key)))
        gap = min_resources_gap(gang, view, running)
        if gap:
            lacking = ", ".join(f"{amount_text(name, gap[name])} {name}" for name in sorted(gap))
            return f"`minResources` of `{gang.key}` needs {lacking} more than is free"
    return ""


def missing_members(unit: GangUnit, members: GangMembers) -> str:
    """Return how many members are left where too few are, as some that ran are gone; else ""."""
    for gang, due, _ in unit.parts:
        if gang.match_policy is MatchPolicy.ONLY_WAITING:
            continue
        counts = count_members(members.of(gang.key))
        exist = counts.started + gang.succeeded + len(due)
        if exist < gang.min_member:
            return f"{exist} of {gang.min_member} members of `{gang.key}` are left"
    return ""
