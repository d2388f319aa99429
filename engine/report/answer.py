"""The answer of a simulation in one sentence: what the policies of an arm change, and the price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.model.count_text import counted
from engine.model.measure import Measure
from engine.report.simulation import ArmPlacement, ArmReport, SimulationReport, Spread

_WITHOUT_POLICIES: Final = (ArmPlacement.RECORDED, ArmPlacement.STOCK)


def arms_of_policies(report: SimulationReport) -> Sequence[ArmReport]:
    """Return the arms that are compared with the first one."""
    return [arm for arm in report.arms if arm.placement not in _WITHOUT_POLICIES]


def answers(report: SimulationReport) -> tuple[str, ...]:
    """Return a sentence for each arm with policies; for the first arm if there is none."""
    if not report.arms:
        return ()
    first, arms = report.arms[0], arms_of_policies(report)
    return tuple(_compared(first, arm) for arm in arms) or (_alone(first),)


def spread_of(arm: ArmReport, measure: Measure, resource: str) -> Spread | None:
    """Return a measure of a resource over the nodes of an arm; None where it has none."""
    found = (each for each in arm.spreads if (each.measure, each.resource) == (measure, resource))
    return next(found, None)


def _compared(first: ArmReport, arm: ArmReport) -> str:
    changes = [("hot nodes", first.hot_nodes, arm.hot_nodes, "")]
    before, after = (spread_of(each, Measure.LOAD, "cpu") for each in (first, arm))
    if before is not None and after is not None:
        fullest = round(before.max), round(after.max)
        changes.append(("the fullest node", *fullest, " % of cpu in use"))
    takes = [
        f"{what} from {old:,} to {new:,}{unit}" for what, old, new, unit in changes if old != new
    ]
    leaves = [f"{what} at {new:,}{unit}" for what, old, new, unit in changes if old == new]
    parts = (("takes", takes), ("leaves", leaves))
    done = (f"{verb} {' and '.join(whats)}" for verb, whats in parts if whats)
    text = f"{arm.name} {' and '.join(done)}"
    pods = arm.landed + arm.unplaced + arm.refused
    text += f"; {counted(arm.moves, 'pod')} of {pods:,} elsewhere"
    lost = arm.unplaced + arm.refused - first.unplaced - first.refused
    if lost > 0:
        text += f", {counted(lost, 'pod')} more without a node"
    elif lost < 0:
        text += f", {counted(-lost, 'pod')} fewer without a node"
    return f"{text}."


def _alone(arm: ArmReport) -> str:
    without = arm.unplaced + arm.refused
    nodes = f"{counted(arm.hot_nodes, 'hot node')} under {arm.name} alone"
    return f"{counted(arm.landed, 'pod')} would get a node, {without:,} would not; {nodes}."
