"""Lint: what is valid in a policy and probably not meant.

Units, orders, logic and words are read in the syntax tree; effects are observed by evaluating each
rule on a small recorded cluster that is varied on purpose. Nothing here runs while policies are
loaded or pods are reviewed, and no mistake is found here: those are refused when policies are
compiled.
"""

from engine.policy_lint.lint import CHECKS, Check, PolicyWarning, policy_warnings
from engine.policy_lint.on_cluster import KnownCluster

__all__ = ["CHECKS", "Check", "KnownCluster", "PolicyWarning", "policy_warnings"]
