"""Arrivals replayed on a recorded cluster, under a model of the scheduler and under policies.

What belongs here: who arrives when, how a cluster fills pod by pod, nodes that go and come, its
figures, the changes of a what-if, and plans that repack a cluster, as pure functions of data and a
seed; `scheduler` is the model of the scheduler. Never: where recordings come from, how results
look and how long anything takes.
"""

from engine.simulation.arms import Arm, daemon_nodes, decided_at_binding
from engine.simulation.arrivals import (
    AddNodes,
    Arrivals,
    Change,
    ChangeError,
    DrainNode,
    RecordedCluster,
    RecordedPod,
    ScaleDeployment,
    Scenario,
    capacity_buffer,
    generated_arrivals,
    manifest_arrivals,
    placeholders,
    recorded_arrivals,
    what_if,
)
from engine.simulation.packing import can_solve
from engine.simulation.repacking import repack
from engine.simulation.scheduler import (
    SchedulerModel,
    node_scores,
    passing_nodes,
    unschedulable_message,
)
from engine.simulation.simulation import Simulation, simulate

__all__ = [
    "AddNodes",
    "Arm",
    "Arrivals",
    "Change",
    "ChangeError",
    "DrainNode",
    "RecordedCluster",
    "RecordedPod",
    "ScaleDeployment",
    "Scenario",
    "SchedulerModel",
    "Simulation",
    "can_solve",
    "capacity_buffer",
    "daemon_nodes",
    "decided_at_binding",
    "generated_arrivals",
    "manifest_arrivals",
    "node_scores",
    "passing_nodes",
    "placeholders",
    "recorded_arrivals",
    "repack",
    "simulate",
    "unschedulable_message",
    "what_if",
]
