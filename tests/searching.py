"""How many examples a property is checked with: a few in every run, all of them in a search.

`make test` checks a share of the examples that a test names, the same ones each time. `make search`
checks all of them; with `STOWPLAN_TEST_EXAMPLES=500` in its environment it searches for new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SHARE = 6
"""One example in so many is checked in every run."""
FEWEST = 10
"""Examples that a property has at least, where it names as many."""

# A slow or busy machine must not turn a true property into a failure. The same code is tested with
# the same examples everywhere; new ones are searched for where a number of them is asked for.
settings.register_profile(
    "test",
    deadline=None,
    derandomize="STOWPLAN_TEST_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("test"))


def examples(named: int) -> int:
    """Return how many of the examples that a test names are checked in this run."""
    if settings.get_current_profile_name() == "search":
        return named
    return min(named, max(FEWEST, named // SHARE))
