"""The policies in force: those of files and those of the API, joined."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from engine.binding import BindingAction, BindingDecision
from engine.model import api
from engine.model.decision import Decision, PlacementRequest, RuleTimes, Verdict
from engine.model.pod import pod_of
from engine.policy import CompiledPolicy, Mode, NodeExpression, PolicySet, rule_keys
from engine.view import PodSumProfile
from webhook.cluster import Cluster
from webhook.placement.placer import Placement, Rejections, rejections_of
from webhook.placement.policy_files import PolicyFiles, PolicyResources, ResourceStanding

_OUTCOMES: Final = {
    Verdict.PLACE: "placed",
    Verdict.ABSTAIN: "abstained",
    Verdict.DENY: "denied",
}

_ENFORCE: Final = Mode.ENFORCE.value  # plain text: an enum's hash takes longer than counting
_AUDIT: Final = Mode.AUDIT.value

Counts: TypeAlias = Mapping[tuple[str, str, str], int]
"""Label values to a number that only grows."""


class PolicyCounts:
    """Decisions by policy, mode and outcome; rejected nodes by policy, mode and filter; failures.

    A policy starts at 0 when it comes into force, or when its mode changes; what went out of force
    is forgotten. So there are as many counts as the policies in force have rules.
    """

    def __init__(self) -> None:
        # the time that rules take, by policy and rule
        self.rule_times = RuleTimes(time.perf_counter_ns)
        self._policies = PolicySet()
        self._decisions: dict[tuple[str, str, str], int] = {}
        self._rejections: dict[tuple[str, str, str], int] = {}
        self._errors: dict[str, tuple[int, str]] = {}

    def count(self, placement: Placement, policies: PolicySet) -> None:
        self._follow(policies)
        self._add(_ENFORCE, placement.policies, placement.verdict, placement.rejections)
        self._note(placement.errors)
        audit = placement.audit
        if audit is not None:
            self._add(_AUDIT, audit.policies, audit.verdict, audit.rejections)

    def count_release(self, decision: Decision, verdict: Verdict, policies: PolicySet) -> None:
        self._follow(policies)
        self._add(_ENFORCE, decision.policies, verdict, rejections_of(decision))
        self._note(decision.errors)
        audit = decision.audit
        if audit is not None:
            self._add(_AUDIT, audit.policies, audit.verdict, rejections_of(audit))

    def count_binding(self, made: BindingDecision, policies: PolicySet) -> None:
        self._follow(policies)
        for mode, each in ((_ENFORCE, made), (_AUDIT, made.audit)):
            decision = None if each is None else each.decision
            if each is None or decision is None:
                continue
            is_denied = each.action is BindingAction.DENY
            verdict = Verdict.DENY if is_denied else decision.verdict
            self._add(mode, decision.policies, verdict, rejections_of(decision))
            if mode == _ENFORCE:
                self._note(decision.errors)

    def decisions(self, policies: PolicySet) -> Counts:
        """Number of decisions that a policy took part in, by policy, mode and outcome."""
        self._follow(policies)
        return self._decisions

    def rejections(self, policies: PolicySet) -> Counts:
        """Number of nodes that a filter was the first to reject, by policy, mode and filter."""
        self._follow(policies)
        return self._rejections

    def rule_seconds(self, policies: PolicySet) -> Mapping[tuple[str, str], float]:
        """Seconds that rules took to be evaluated, by policy and rule.

        The rules of a namespace's policy count together: there may be any number of them.
        """
        return {key: spent / 1e9 for key, (spent, _) in self._rule_times(policies).items()}

    def rule_evaluations(self, policies: PolicySet) -> Mapping[tuple[str, str], int]:
        """Number of evaluations of rules, as `rule_seconds`."""
        return {key: count for key, (_, count) in self._rule_times(policies).items()}

    def _rule_times(self, policies: PolicySet) -> Mapping[tuple[str, str], tuple[int, int]]:
        self._follow(policies)
        times: dict[tuple[str, str], tuple[int, int]] = {}
        for policy, rule, spent, count in self.rule_times:
            key = policy, "" if "/" in policy else rule
            before = times.get(key, (0, 0))
            times[key] = before[0] + spent, before[1] + count
        return times

    def errors(self, policy: str) -> tuple[int, str]:
        """Return how often a part of a policy could not be evaluated, and the last line of it."""
        return self._errors.get(policy, (0, ""))

    def _note(self, errors: tuple[str, ...]) -> None:
        """Count lines that begin with the name of their policy."""
        for line in errors:
            policy, _, text = line.partition(": ")
            count, _ = self._errors.get(policy, (0, ""))
            self._errors[policy] = count + 1, text

    def _add(
        self, mode: str, policies: tuple[str, ...], verdict: Verdict, rejections: Rejections
    ) -> None:
        outcome = _OUTCOMES[verdict]
        for policy in policies:
            self._decisions[policy, mode, outcome] += 1
        for policy, rule, nodes in rejections:
            self._rejections[policy, mode, rule] += nodes

    def _follow(self, policies: PolicySet) -> None:
        if policies is self._policies:
            return
        self._policies = policies
        self.rule_times.keep(rule_keys(policies))
        names = {policy.name for policy in policies}
        self._errors = {name: each for name, each in self._errors.items() if name in names}
        before = self._decisions, self._rejections
        self._decisions = {key: before[0].get(key, 0) for key in _decision_keys(policies)}
        self._rejections = {key: before[1].get(key, 0) for key in _rejection_keys(policies)}


def _decision_keys(policies: PolicySet) -> Iterator[tuple[str, str, str]]:
    for policy in policies:
        for outcome in _OUTCOMES.values():
            yield policy.name, policy.mode.value, outcome


def _rejection_keys(policies: PolicySet) -> Iterator[tuple[str, str, str]]:
    for policy in policies:
        for rule in policy.filters:
            yield policy.name, policy.mode.value, rule.name


_REQUESTS: Final[tuple[dict[str, str], ...]] = ({"cpu": "100m", "memory": "128Mi"}, {})
"""Of one pod each: by them alone Koordinator counts the first as production, the other as batch."""

_MOST_RULES: Final = 64
"""Expressions whose columns are filled, those of the policies that come first.

A view remembers 256 columns of nodes; more rules would forget those of others.
"""

_log = logging.getLogger(__name__)


class WarmUp:
    """Fills the columns that decisions share, in steps that hold no view between them.

    The first decision by a set of policies, and the first one after a node came, would fill them.
    """

    def __init__(
        self, cluster: Cluster, decide: Callable[[PlacementRequest, PolicySet], object]
    ) -> None:
        self._cluster = cluster
        self._decide = decide
        self._requests = [_request(resources) for resources in _REQUESTS]

    def steps(self, policies: PolicySet) -> Iterator[None]:
        """Fill the columns for policies, in force or not yet; one rule or decision each step.

        The rules come first, also those that apply to few pods. Decisions for plain pods fill what
        plugins and patches remember.
        """
        rules = (
            (policy, rule.evaluator)
            for policy in policies
            for rule in policy.rules
            if isinstance(rule.evaluator, NodeExpression)
        )
        for policy, expression in islice(rules, _MOST_RULES):
            self._try(lambda: self._refresh(policy, expression))  # noqa: B023 - called at once
            yield
        for request in self._requests:
            self._try(lambda: self._decide(request, policies))  # noqa: B023 - called at once
            yield

    def _refresh(self, policy: CompiledPolicy, expression: NodeExpression) -> None:
        cluster = self._cluster
        expression.refresh(policy.context(self._requests[0], cluster.view(), cluster.now()))

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception:  # noqa: BLE001 - policies must not fail to load for a trial
            _log.exception("a trial evaluation failed")


def _request(resources: dict[str, str]) -> PlacementRequest:
    container = {"name": "plain", "resources": {"requests": resources}}
    pod = {"metadata": {"name": "plain"}, "spec": {"containers": [container]}}
    raw = msgspec.json.encode(pod)
    pod_read = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace="default")
    return PlacementRequest(pod=pod_read, raw=raw)


PlacementMode: TypeAlias = Literal["Enforce", "Audit", "Off"]
"""Effect of policies: each by its own mode, a report of what all would do, or none."""

WhenWorse: TypeAlias = Literal["Report", "Audit"]
"""What follows where a policy makes things worse: an alert and an Event, or Audit mode as well."""

_DIGEST_BYTES = 16
_TOGETHER_SECONDS: Final = 0.2  # changes that come within it are taken up together
_APART_SECONDS: Final = 0.8  # between two times: the columns of new policies take a while to fill
_LOOK_SECONDS: Final = 0.25  # between two looks for changed nodes
_REST: Final = 20  # times as long as their columns took: a twentieth of a processor at most


class WatchedCluster(Protocol):
    """A cluster whose nodes change; see `webhook.cluster.Cluster`."""

    async def synced(self) -> None: ...
    def nodes_version(self) -> int: ...


class LivePolicies:
    """The policies in force: of files the last valid set, of the API each that is accepted.

    Attributes:
        loaded_at: when policies last came into force.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        paths: Sequence[Path],
        *,
        resources: PolicyResources | None = None,
        track: Callable[[Iterable[PodSumProfile]], None],
        prepare: Callable[[Iterable[PodSumProfile]], Iterable[None]] = lambda _: (),
        warm_up: Callable[[PolicySet], Iterable[None]] = lambda _: (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        only_audit: bool = False,
        may_start_empty: bool = False,
    ) -> None:
        self._files = PolicyFiles(paths, may_start_empty=may_start_empty)
        self._resources = resources
        self._track = track
        self._prepare = prepare
        self._warm_up = warm_up
        self._now = now
        self._only_audit = only_audit
        self._audited: Mapping[str, str] = {}
        self._switching = asyncio.Lock()
        self._has_resources = resources is None
        self._use(self._files.current)

    @property
    def current(self) -> PolicySet:
        return self._current

    @property
    def is_loaded(self) -> bool:
        """Whether the files were valid once, and the policies of the API were taken up once."""
        return self._files.is_loaded and self._has_resources

    @property
    def last_error(self) -> str:
        """The error of the last load of files; empty if it succeeded."""
        return self._files.last_error

    @property
    def file_names(self) -> frozenset[str]:
        """Names of the policies in files, which none of the API can have."""
        return frozenset(policy.name for policy in self._files.current)

    @property
    def standings(self) -> tuple[ResourceStanding, ...]:
        """What became of each policy of the API."""
        return () if self._resources is None else self._resources.standings(self.file_names)

    def cost_of_others(self, namespace: str, name: str) -> int:
        """Return what the policies of the API for a namespace cost, without the one of a name."""
        return sum(
            each.policy.cost
            for each in self.standings
            if each.policy is not None
            and each.resource.namespace == namespace
            and each.resource.name != name
        )

    @property
    def digest(self) -> str:
        """Hash of the policies in force, in hexadecimal digits."""
        total = blake2b(digest_size=_DIGEST_BYTES)
        for policy in self._current:
            total.update(policy.digest)
        return total.hexdigest()

    def keep_in_audit(self, digests: Mapping[str, str]) -> None:
        """Keep policies in Audit mode, whatever they say themselves, and no others."""
        if digests == self._audited:
            return
        self._audited = dict(digests)
        self._current = self._loaded.in_audit_mode(self._is_audited)

    def _is_audited(self, policy: CompiledPolicy) -> bool:
        return self._only_audit or self._audited.get(policy.name) == policy.digest.hex()

    async def reload(self) -> bool:
        """Load the files again, off the event loop; return whether they are valid."""
        loaded = await self._files.load()
        if loaded is None:
            return False
        async with self._switching:
            await self._switch(loaded)
        return True

    async def follow_resources(self) -> None:
        """Take up the policies of the API, and what changes of them; until cancelled."""
        resources = self._resources
        if resources is None:
            return
        while True:
            try:
                await self.take_up(resources)
            except Exception:  # noqa: BLE001 - a bug must not end it: later changes must be seen
                _log.exception("policies of the API could not be taken up")
            await asyncio.sleep(_APART_SECONDS)
            await resources.changed.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)

    async def take_up(self, resources: PolicyResources) -> None:
        """Compile what has changed of the policies of the API, and let it come into force."""
        await resources.compile_changed()
        async with self._switching:
            await self._switch(self._files.current)
        self._has_resources = True

    async def warm_up(self) -> float:
        """Fill the caches of the policies in force, once the cluster is synced.

        Returns:
            The seconds that it took, without the reviews in between.
        """
        return await self._run_warm_up(self._current)

    async def follow_nodes(self, cluster: WatchedCluster) -> None:
        """Fill the caches again whenever nodes have changed; never returns.

        Otherwise the first decision after a node came would.
        """
        await cluster.synced()
        filled = 0
        while True:
            nodes, took = cluster.nodes_version(), 0.0
            if nodes != filled:
                filled, took = nodes, await self.warm_up()
            await asyncio.sleep(max(_LOOK_SECONDS, _REST * took))

    async def _switch(self, of_files: PolicySet) -> None:
        """Join policies of files with those of the API, and let reviews be decided by them."""
        policies = PolicySet((*of_files, *self._of_resources(of_files)))
        changes = "; ".join(_changes(self._loaded, policies))
        if not changes and of_files is self._files.current:
            return
        for _ in self._prepare(policies.sum_profiles):
            await asyncio.sleep(0)  # reviews go on
        self._track((*self._current.sum_profiles, *policies.sum_profiles))
        await self._run_warm_up(policies)
        if of_files is not self._files.current:
            self._files.use(of_files)
        self._use(policies)
        _log.info("policies reloaded: %s", changes or "no change")

    def _of_resources(self, of_files: PolicySet) -> Iterator[CompiledPolicy]:
        if self._resources is not None:
            names = frozenset(policy.name for policy in of_files)
            for standing in self._resources.standings(names):
                if standing.policy is not None:
                    yield standing.policy

    async def _run_warm_up(self, policies: PolicySet) -> float:
        took, begun = 0.0, time.monotonic()
        for _ in self._warm_up(policies):
            took += time.monotonic() - begun
            await asyncio.sleep(0)  # reviews go on
            begun = time.monotonic()
        return took

    def _use(self, policies: PolicySet) -> None:
        self._track(policies.sum_profiles)
        self._loaded = policies
        self._current = policies.in_audit_mode(self._is_audited)
        self.loaded_at = self._now()


def _changes(before: PolicySet, after: PolicySet) -> Iterator[str]:
    """Yield the policies that were added, removed and changed, by name."""
    old, new = ({policy.name: policy.digest for policy in policies} for policies in (before, after))
    for change, names in (
        ("added", new.keys() - old.keys()),
        ("removed", old.keys() - new.keys()),
        ("changed", {name for name in old.keys() & new.keys() if old[name] != new[name]}),
    ):
        if names:
            yield f"{change} {', '.join(sorted(names))}"
