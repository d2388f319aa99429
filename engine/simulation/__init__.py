"""Arrivals replayed on a recorded cluster, under a model of the scheduler and under policies.

What belongs here: who arrives when, how a cluster fills pod by pod, its figures, and the changes of
a what-if, as pure functions of data and a seed. Never: where recordings come from, how results look
and how long anything takes.
"""

from engine.simulation.arms import Arm, Placement, SchedulerLike
from engine.simulation.arrivals import (
    Arrival,
    Arrivals,
    RecordedPod,
    generated_arrivals,
    manifest_arrivals,
    recorded_arrivals,
)
from engine.simulation.changes import AddNodes, Change, ChangeError, DrainNode, ScaleDeployment
from engine.simulation.simulation import Simulation, simulate

__all__ = [
    "AddNodes",
    "Arm",
    "Arrival",
    "Arrivals",
    "Change",
    "ChangeError",
    "DrainNode",
    "Placement",
    "RecordedPod",
    "ScaleDeployment",
    "SchedulerLike",
    "Simulation",
    "generated_arrivals",
    "manifest_arrivals",
    "recorded_arrivals",
    "simulate",
]
