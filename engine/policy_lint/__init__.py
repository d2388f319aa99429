"""Lint: what is valid in a policy and probably not meant.

Rules are run on a built-in cluster that is varied on purpose, or on a recorded one (`samples`,
`effects`); what they require of labels is compared with each other (`labels`). Units, logic and
words are read in the syntax tree. Nothing here runs while policies are loaded or pods are reviewed,
and no mistake is found here: those are refused when policies are compiled.
"""

from engine.policy_lint.lint import CHECKS, Check, PolicyWarning, joint_warnings, policy_warnings
from engine.policy_lint.on_cluster import KnownCluster

__all__ = ["CHECKS", "Check", "KnownCluster", "PolicyWarning", "joint_warnings", "policy_warnings"]
