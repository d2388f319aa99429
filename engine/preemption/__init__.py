"""Preemption for held pods: who is evicted for a pod of higher priority, on one node or several."""
