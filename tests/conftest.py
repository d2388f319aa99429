"""Settings that every test shares."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_IS_RANDOM = "STOWPLAN_TEST_EXAMPLES" in os.environ

# A slow or busy machine must not turn a true property into a failure. The same code is tested with
# the same examples everywhere; new ones are searched for where a number of them is asked for.
settings.register_profile(
    "stowplan",
    deadline=None,
    derandomize=not _IS_RANDOM,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("stowplan")
