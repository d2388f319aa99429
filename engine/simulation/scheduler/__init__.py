"""A model of kube-scheduler 1.36 as it is shipped: which node it would bind a pod to.

Its filters, scores, weights and sampling are those of the default profile. What the scheduler is
told by nobody here, as who evicts whom, does not belong here; nor do policies.
"""

from engine.simulation.scheduler.model import (
    SchedulerModel,
    node_scores,
    passing_nodes,
    unschedulable_message,
)

__all__ = ["SchedulerModel", "node_scores", "passing_nodes", "unschedulable_message"]
