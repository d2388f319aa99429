"""Policy tests: the cases that an author writes beside a policy, their objects, and their runner.

They decide by `engine.pipeline`, as the webhook does; no rule is evaluated here.
"""

from engine.policy_tests import cross_check
from engine.policy_tests.cross_check import CrossCheck, Difference
from engine.policy_tests.runner import CaseResult, CaseRun, run_cases

__all__ = ["CaseResult", "CaseRun", "CrossCheck", "Difference", "can_cross_check", "run_cases"]

can_cross_check = cross_check.is_installed
