"""State machine: quotas come and go, leaders change, API servers lag, others write."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, QuotaKey
from engine.quota import Reach, reach_of
from tests.webhook.controllers.quota_rollout.configurations import (
    NAMESPACE,
    ApiServersModel,
    Fate,
    ModelConnection,
    Weather,
)
from tests.webhook.controllers.release.steady_loop import SteadyLoop
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.quota_rollout import (
    ApiServers,
    QuotaCoverage,
    QuotaRolloutController,
    RolloutConfiguration,
    RolloutError,
    stored_reach,
)

REQUEST_SECONDS = 60.0  # for which an API server works on a request
REVIEW_SECONDS = 6.0  # the part of its timeout that a review may take
SETTLE_SECONDS = 61.0
NAMESPACES = st.sampled_from(["a", "b", "c"])
REPLICAS = st.integers(0, 1)
GROUPS = st.sampled_from([UPSTREAM_GROUP] * 9 + [KOORDINATOR_GROUP])
LAGS = st.tuples(*[st.sampled_from([0.0, 0.1, 2.0, 30.0, 100.0])] * 2)
WEATHER = st.builds(
    Weather,
    there=st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    back=st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    fate=st.sampled_from([*[Fate.DONE] * 3, *Fate]),
)


@dataclass
class Replica:
    """A replica, with what its watch has shown, and the namespaces that it shows."""

    loop: SteadyLoop
    model: ApiServersModel
    leads: bool = False
    seen: frozenset[QuotaKey] = frozenset()
    shown: Reach = frozenset()
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        connection = ModelConnection(self.model)
        clock = MonotonicClock(now=self.loop.time, jitter=lambda: 0.5)
        configuration = RolloutConfiguration(connection, "stowplan")
        self.coverage = QuotaCoverage(configuration, ApiServers(connection, NAMESPACE), clock)
        self.controller = QuotaRolloutController(
            configuration,
            self.coverage,
            known=self.known,
            stored=partial(stored_reach, connection),
            settle_seconds=SETTLE_SECONDS,
            may_write=lambda: self.leads,
            show=self.show,
            clock=clock,
        )

    def known(self) -> Reach:
        return reach_of(self.seen)

    def show(self, names: Reach) -> None:
        self.shown = names

    def lead(self) -> None:
        self.leads = True
        self.tasks.append(self.loop.create_task(self.controller.run()))

    def end(self) -> None:
        self.leads = False
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()


class RolloutCluster(RuleBasedStateMachine):
    """Two replicas, two API servers, tenants and faults."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteadyLoop()
        self.model = ApiServersModel(self.loop.time)
        self.replicas = [Replica(self.loop, self.model) for _ in range(2)]
        self.replicas[0].lead()
        self.in_force: set[QuotaKey] = set()
        self.creations: set[asyncio.Task[None]] = set()

    @initialize()
    def narrow(self) -> None:
        self.loop.advance(SETTLE_SECONDS + REQUEST_SECONDS)
        assert not self.model.selects(-1, "a")

    # Tenants.

    @rule(
        namespace=NAMESPACES,
        group=GROUPS,
        replica=REPLICAS,
        stored_after=st.sampled_from([0.0, 0.1, 20.0, 59.0]),
        lags=LAGS,
    )
    def create_quota(
        self,
        namespace: str,
        group: str,
        replica: int,
        stored_after: float,
        lags: tuple[float, ...],
    ) -> None:
        self.lag(lags)
        key = (namespace, group, "team")
        if key not in self.model.quotas:
            creation = self._creation(key, self.replicas[replica], stored_after)
            task = self.loop.create_task(creation)
            self.creations.add(task)
            task.add_done_callback(self.creations.discard)
        self.loop.advance()

    async def _creation(self, key: QuotaKey, replica: Replica, stored_after: float) -> None:
        """Create a quota as an API server does: reviewed first, and stored within a minute."""
        begun = self.loop.time()
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                await replica.coverage.cover(reach_of([key]))
        except (RolloutError, TimeoutError):
            return
        left = begun + REQUEST_SECONDS - self.loop.time()
        await asyncio.sleep(min(stored_after, left))
        self.model.quotas.add(key)
        self.in_force.add(key)

    @rule(namespace=NAMESPACES, group=GROUPS)
    def create_quota_while_nobody_is_asked(self, namespace: str, group: str) -> None:
        self.model.quotas.add((namespace, group, "team"))

    @rule(namespace=NAMESPACES, group=GROUPS)
    def delete_quota(self, namespace: str, group: str) -> None:
        key = (namespace, group, "team")
        self.model.quotas.discard(key)
        self.in_force.discard(key)

    # API servers, and what happens on the way to them.

    def lag(self, seconds: tuple[float, ...]) -> None:
        for follower, lag_seconds in zip(self.model.followers, seconds, strict=True):
            self.model.version_of(follower)
            follower.lag_seconds = lag_seconds

    @rule(weather=WEATHER)
    def worsen(self, weather: Weather) -> None:
        self.model.weather.append(weather)

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.5, 2.0, 10.0, 61.0]), lags=LAGS)
    def pass_time(self, seconds: float, lags: tuple[float, ...]) -> None:
        self.lag(lags)
        self.loop.advance(seconds)

    @rule()
    def calm_down(self) -> None:
        self.model.weather.clear()
        self.watch(0)
        self.watch(1)
        self.loop.advance(3 * SETTLE_SECONDS)

    # Replicas, and others who write.

    @rule(replica=REPLICAS)
    def watch(self, replica: int) -> None:
        self.replicas[replica].seen = frozenset(self.model.quotas)

    @rule(replica=REPLICAS, crashes=st.booleans())
    def change_leader(self, replica: int, crashes: bool) -> None:  # noqa: FBT001 - drawn
        for each in self.replicas:
            each.end()
        if crashes:
            self.loop.create_task(self.replicas[1 - replica].coverage.close())
            self.replicas[1 - replica] = Replica(self.loop, self.model)
        self.replicas[replica].lead()
        self.loop.advance()

    @rule(is_upgrade=st.booleans())
    def write_as_others(self, is_upgrade: bool) -> None:  # noqa: FBT001 - drawn
        if is_upgrade:
            self.model.upgrade()
        else:
            self.model.rotate()

    # What must be true.

    @invariant()
    def no_pod_is_created_unjudged(self) -> None:
        for namespace in sorted(reach_of(self.in_force) or {"a", "b", "c", "of-nobody"}):
            for follower in self.model.followers:
                assert not self.in_force or self.model.selects(
                    self.model.version_of(follower), namespace
                )

    def teardown(self) -> None:
        """Let all calm down: then namespaces with a quota are asked about, and no others."""
        try:
            self.model.weather.clear()
            self.loop.advance(2 * REQUEST_SECONDS)
            for replica in self.replicas:
                replica.seen = frozenset(self.model.quotas)
            self.loop.advance(3 * SETTLE_SECONDS)
            reach = reach_of(self.model.quotas)
            for namespace in ("a", "b", "c", "of-nobody"):
                is_needed = reach is None or namespace in reach
                assert self.model.selects(-1, namespace) is is_needed
        finally:
            for replica in self.replicas:
                replica.end()
                self.loop.create_task(replica.coverage.close())
            self.loop.advance(1)
            self.loop.close()
