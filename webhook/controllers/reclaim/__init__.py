"""Reclaim: pods within `min` take back what other quotas borrow, by evictions.

What belongs here: the controller of the leader that carries out plans step by step, its evictions,
and what it tells. What never does: who is evicted for whom (`engine.reclaim`), and releases.
"""
