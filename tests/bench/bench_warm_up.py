"""What the first decision takes after nodes came, or a policy: its columns filled before, and not.

Run as `python -m tests.bench.bench_warm_up [--nodes N]`. CPU time of one decision by the rules of
`tests.bench.cel_rules`, with and without `webhook.placement.warm_up` before it, by turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine.model.time import Micros, micros
from engine.pipeline import Scope, decide
from engine.policy import PolicySet
from engine.view import ClusterView
from tests.bench.cel_rules import REQUEST, policy_of_all
from tests.bench.changing_cluster import ChangingCluster, forgetful
from tests.bench.texts import NOW
from webhook.placement.placer import Placer
from webhook.placement.warm_up import WarmUp

_NOW = micros(NOW)
_ROUNDS = 15


@dataclass(frozen=True, slots=True)
class _Moment:
    """A cluster in which nothing changes."""

    at: ClusterView

    def view(self) -> ClusterView:
        return self.at

    def now(self) -> Micros:
        return _NOW


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    nodes = parser.parse_args().nodes
    made = ChangingCluster(nodes)
    policies = PolicySet([policy_of_all()])
    print(f"first decision on {nodes:,} nodes, us     at once   columns filled   filling, longest")
    for new in (1, 10, 100):
        _compare(f"{new} new nodes", made, policies, partial(_with_new, made, new))
    _compare("a new policy", made, policies, lambda: forgetful(made.state.view()))


def _with_new(made: ChangingCluster, nodes: int) -> ClusterView:
    made.add(nodes)
    return made.state.view()


def _compare(
    what: str, made: ChangingCluster, policies: PolicySet, prepare: Callable[[], ClusterView]
) -> None:
    """Print the least times of some rounds."""
    decide(REQUEST, policies, made.state.view(), _NOW)
    at_once, filled, filling, longest = [], [], [], []
    for _ in range(_ROUNDS):
        at_once.append(_decision(policies, prepare()))
        view = prepare()
        steps = _steps(policies, view)
        filling.append(sum(steps))
        longest.append(max(steps))
        filled.append(_decision(policies, view))
    cells = "".join(f"{min(times):12.0f}" for times in (at_once, filled, filling, longest))
    print(f"  {what:32}{cells}")


def _decision(policies: PolicySet, view: ClusterView) -> float:
    start = time.process_time_ns()
    decide(REQUEST, policies, view, _NOW)
    return (time.process_time_ns() - start) / 1000


def _steps(policies: PolicySet, view: ClusterView) -> list[float]:
    """Fill the columns of a view; return what each step takes."""
    took, start = [], time.process_time_ns()
    moment = _Moment(view)
    placer = Placer(view=moment.view, now=moment.now, scope=Scope())
    for _ in WarmUp(moment, placer.decide).steps(policies):
        took.append((time.process_time_ns() - start) / 1000)
        start = time.process_time_ns()
    return took


if __name__ == "__main__":
    main()
