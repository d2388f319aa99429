"""Arrivals replayed on a recorded cluster, under a model of the scheduler and under policies."""

from engine.simulation.scheduler import SchedulerModel, unschedulable_message

__all__ = ["SchedulerModel", "unschedulable_message"]
