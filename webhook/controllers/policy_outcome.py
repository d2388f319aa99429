"""What became of decisions: where pods were bound, and what that says of policies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.model.decision import ADVICE_ANNOTATION, Advice, advice_in
from engine.model.pod import Pod
from engine.model.time import Micros, date
from engine.outcome import (
    OutcomeCounts,
    OutcomeWindow,
    PolicyLanding,
    WindowState,
    WorseRules,
    advised_landings,
    may_be_audited,
)
from engine.policy import CompiledPolicy, Mode, PolicySet
from engine.report import POINT, RANK_BOUNDS, AuditedPolicy, OutcomeFigures, OutcomeReport
from webhook.binding import BindingRecord, BindingRecords
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.cluster.object_event import ObjectEvent, ObjectReference
from webhook.cluster.objects import UNREADABLE
from webhook.placement.live_policies import LivePolicies, WhenWorse

# The policies that are in Audit mode for what they did, on every replica.
#
# The leader says on the Lease which ones: every replica reads that within seconds. While nobody
# leads, what was said last stays in force.


AUDITED_ANNOTATION: Final = "stowplan.dev/audited-policies"
"""On the Lease: JSON of `AuditedPolicy` by name."""

_SECONDS: Final = 1.0


class AuditedPolicies:
    """Follows what the leader says."""

    def __init__(
        self, policies: LivePolicies, lease_annotations: Callable[[], Mapping[str, str]]
    ) -> None:
        self._policies = policies
        self._lease_annotations = lease_annotations
        self._last = ""

    async def follow(self) -> None:
        """Repeat until cancelled."""
        while True:
            self.read()
            await asyncio.sleep(_SECONDS)

    def read(self) -> None:
        """Do what the Lease says, if it says anything new."""
        text = self._lease_annotations().get(AUDITED_ANNOTATION, "")
        if not text or text == self._last:
            return
        self._last = text
        try:
            audited = msgspec.json.decode(text, type=dict[str, AuditedPolicy])
        except UNREADABLE:
            return
        self.use(audited)

    def use(self, audited: Mapping[str, AuditedPolicy]) -> None:
        """Keep these policies in Audit mode, and no others."""
        self._policies.keep_in_audit({name: each.digest for name, each in audited.items()})


_MOST_UNBOUND: Final = 20_000
"""Beyond that bindings are missed: tenants decide how many pods wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    namespace: str
    node_name: str
    decided: BindingRecord | None  # the record of its binding; None where that was not decided
    advice: Advice | None  # that it was given when it was created; None without any


class BoundPods:
    """Tells of the pods that are bound, if we had a say in where to; an observer of pods.

    A pod that was advised counts if it was seen without a node before.
    """

    def __init__(self, records: BindingRecords) -> None:
        self._records = records
        self._advised: dict[str, str] = {}  # uid by key, of those without a node
        self._count: Callable[[BoundPod], None] | None = None

    def begin(self, count: Callable[[BoundPod], None]) -> None:
        self._count = count

    def end(self) -> None:
        """Count no more; what waits to be bound is known all the same."""
        self._count = None

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Note that a pod waits, or count it once it is bound."""
        key = pod.key
        if not pod.node_name and not pod.is_terminal:
            is_known = key in self._advised or len(self._advised) < _MOST_UNBOUND
            if is_known and ADVICE_ANNOTATION in pod.annotations:
                self._advised[key] = pod.uid
            return
        was_advised = self._advised.pop(key, None) == pod.uid
        decided = self._records.take(key, pod.uid, pod.node_name)
        advice = advice_in(pod.annotations) if was_advised and decided is None else None
        if (
            self._count is not None
            and pod.node_name
            and (decided is not None or advice is not None)
        ):
            self._count(
                BoundPod(
                    namespace=pod.namespace,
                    node_name=pod.node_name,
                    decided=decided,
                    advice=advice,
                )
            )

    def pod_deleted(self, namespace: str, name: str) -> None:
        self._advised.pop(f"{namespace}/{name}", None)


# Figures and policies in Audit mode, in a ConfigMap: they outlive the leader.
#
# The leader alone writes the figures. Which policies are in Audit mode for what they did, an
# operator may write as well: taking a name out there is how a policy gets back into force.


_WINDOW_SECONDS: Final = 3_600
"""Time whose figures count: long enough for a hundred pods of a policy, `outcome_least_pods`."""

WINDOW_KEY: Final = "window.json"
REPORT_KEY: Final = "report.json"
AUDITED_KEY: Final = "audited.json"

_Part = TypeVar("_Part")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the ConfigMap holds."""

    window: WindowState = WindowState()  # figures, for the next leader
    report: OutcomeReport | None = None  # the same for people; None before the first
    audited: Mapping[str, AuditedPolicy] = {}  # policies in Audit mode for what they did, by name
    version: str = ""  # resourceVersion of the ConfigMap, "" where there is none
    uid: str = ""


class OutcomeRecord:
    """Reads and writes what the leader knows of outcomes."""

    def __init__(self, config_map: ConfigMapStore) -> None:
        self.config_map: Final = config_map

    async def read(self) -> Recorded:
        """Return what was written last; what cannot be read is left out."""
        config_map = await self.config_map.read()
        data = config_map.data
        audited = _read(data, AUDITED_KEY, dict[str, AuditedPolicy]) or {}
        report = _read(data, REPORT_KEY, OutcomeReport)
        return Recorded(
            window=_read(data, WINDOW_KEY, WindowState) or WindowState(),
            report=None if report is None else msgspec.structs.replace(report, audited=audited),
            audited=audited,
            version=config_map.metadata.resource_version,
            uid=config_map.metadata.uid,
        )

    async def report(self) -> OutcomeReport:
        """Return the figures that the leader wrote last; empty ones where they cannot be read."""
        try:
            recorded = await self.read()
        except ApiError as error:
            _log.warning("no figures of the leader: %s", error)
            recorded = Recorded()
        return recorded.report or OutcomeReport(window_seconds=_WINDOW_SECONDS)

    async def write(self, data: Mapping[str, object], version: str = "") -> None:
        """Replace some of its parts, by key; with a version, only while that is the stored one."""
        texts = {key: msgspec.json.encode(value).decode() for key, value in data.items()}
        await self.config_map.write(texts, version)


def _read(data: Mapping[str, str], key: str, kind: type[_Part]) -> _Part | None:
    text = data.get(key)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        _log.warning("`%s` cannot be read, and is begun anew: %s", key, error)
        return None


_ROUND_SECONDS: Final = 20.0
_STORE_SECONDS: Final = 60.0
_LAST_STORE_SECONDS: Final = 2.0
_REPORTED: Final = "makes things worse than the scheduler alone would"
_SET_TO_AUDIT: Final = "is set to Audit"

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class OutcomeController:
    """Counts what became of decisions while this replica leads."""

    connection: Connection  # to the API server, for Events
    identity: str
    bound: BoundPods
    record: OutcomeRecord
    audited: AuditedPolicies  # keeps policies in Audit mode here
    # writes an annotation on the Lease, for the other replicas
    annotate: Callable[[str, str], None]
    policies: Callable[[], PolicySet]
    is_ready: Callable[[], bool]  # whether the cluster and the policies are complete
    now: Callable[[], Micros]
    worse_rules: WorseRules  # when a policy makes things worse
    when_worse: WhenWorse  # what follows then
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.counts = OutcomeCounts()  # figures since the start of this process
        # why which policy makes things worse; empty on replicas that do not lead
        self.worse: Mapping[str, str] = {}
        # those in Audit mode for what they did; likewise
        self.audited_policies: Mapping[str, AuditedPolicy] = {}
        self._window: OutcomeWindow | None = None
        self._stored: WindowState | None = None
        self._stored_at = float("-inf")

    async def run(self) -> None:
        await self.begin()
        try:
            while True:
                await self.round()
                await asyncio.sleep(_ROUND_SECONDS)
        finally:
            await self.end()

    async def begin(self) -> None:
        """Go on where the last leader ended."""
        self._window = await self._restored()
        self.bound.begin(self._count)

    async def end(self) -> None:
        """Count no more: another replica does, and goes on from here if it can be told."""
        window, self._window = self._window, None
        self.bound.end()
        self.worse, self.audited_policies = {}, {}
        if window is not None:
            try:
                async with asyncio.timeout(_LAST_STORE_SECONDS):
                    await self._store(window)
            except (ApiError, TimeoutError) as error:
                _log.info("the latest outcomes are not stored: %s", error)

    async def report(self) -> OutcomeReport:
        """Return the figures: those of this moment if this replica leads, else the stored ones."""
        if self._window is not None:
            return self._report(self._window)
        return await self.record.report()

    def _count(self, bound: BoundPod) -> None:
        """Count where a pod was bound, by what its decision or its advice says of that node."""
        window, landings = self._window, self._landings(bound)
        if window is not None and landings:
            window.add(bound.namespace, landings, self.now())
            self.counts.add(bound.namespace, landings)

    def _landings(self, bound: BoundPod) -> Sequence[PolicyLanding]:
        if bound.decided is not None:
            return bound.decided.landings
        if bound.advice is None:
            return ()
        acting = {each.name for each in self.policies() if each.mode is Mode.ENFORCE}
        return advised_landings(bound.advice, bound.node_name, acting)

    async def round(self) -> None:
        """Follow what an operator has written, judge the policies, and store the figures."""
        if self._window is None or not self.is_ready():
            return
        try:
            recorded = await self.record.read()
            self._follow(self._window, recorded.audited)
            await self._judge_policies(self._window, recorded)
            if self.clock() - self._stored_at >= _STORE_SECONDS:
                await self._store(self._window)
        except ApiError as error:
            _log.warning("outcomes are not stored: %s", error)

    def _follow(self, window: OutcomeWindow, audited: Mapping[str, AuditedPolicy]) -> None:
        """Keep the recorded policies in Audit mode, on every replica."""
        for name in self.audited_policies.keys() - audited.keys():
            _log.warning("policy `%s` is in force again", name)
            window.forget(name)
        self.audited_policies = audited
        self.audited.use(audited)
        self.annotate(AUDITED_ANNOTATION, msgspec.json.encode(audited).decode())

    async def _judge_policies(self, window: OutcomeWindow, recorded: Recorded) -> None:
        """Report policies that make things worse, and set them to Audit where that is wanted."""
        report, before = self._report(window), self.worse
        self.worse = {each.policy: each.worse for each in report.policies if each.worse}
        by_name = {policy.name: policy for policy in self.policies()}
        new: dict[str, AuditedPolicy] = {}
        for name, reason in self.worse.items():
            is_audited = self.when_worse == "Audit" and may_be_audited(by_name[name])
            if is_audited:
                new[name] = self._audited(by_name[name], reason)
            elif name not in before:
                await self._event_of(name, reason, recorded, "Reported", _REPORTED)
        if not new:
            return
        audited = {**recorded.audited, **new}
        await self.record.write({AUDITED_KEY: audited}, recorded.version)
        self._follow(window, audited)
        for name, policy in new.items():
            window.forget(name)
            _log.warning("policy `%s` is set to Audit: %s", name, policy.reason)
            await self._event_of(name, policy.reason, recorded, "SetToAudit", _SET_TO_AUDIT)

    def _audited(self, policy: CompiledPolicy, reason: str) -> AuditedPolicy:
        since = f"{date(self.now()):%Y-%m-%dT%H:%M:%SZ}"
        return AuditedPolicy(digest=policy.digest.hex(), since=since, reason=reason)

    async def _event_of(
        self, name: str, reason: str, recorded: Recorded, action: str, consequence: str
    ) -> None:
        now, config_map = datetime.now(UTC), self.record.config_map
        event = ObjectEvent(
            about=ObjectReference(
                api_version="v1",
                kind="ConfigMap",
                namespace=config_map.namespace,
                name=config_map.name,
                uid=recorded.uid,
            ),
            reason="PolicyMakesThingsWorse",
            action=action,
            message=f"policy `{name}` {consequence}: {reason}",
            since=now,
            until=now,
        )
        await event.write(self.connection, self.identity)

    async def _store(self, window: OutcomeWindow) -> None:
        """Store the figures if they have changed."""
        self._stored_at, state = self.clock(), window.state()
        if state == self._stored:
            return
        await self.record.write({WINDOW_KEY: state, REPORT_KEY: self._report(window)})
        self._stored = state

    async def _restored(self) -> OutcomeWindow:
        """Return the figures of the last leader, none where they cannot be read."""
        try:
            recorded = await self.record.read()
            window = OutcomeWindow(_WINDOW_SECONDS, recorded.window)
        except (ApiError, ValueError) as error:
            _log.warning("outcomes begin anew: %s", error)
            return OutcomeWindow(_WINDOW_SECONDS)
        self._follow(window, recorded.audited)
        return window

    def _report(self, window: OutcomeWindow) -> OutcomeReport:
        return window.report(self.now(), self.policies(), self.worse_rules, self.audited_policies)


_SERIES: Final = ("policy", "mode", "pod_namespace")


def _bands() -> Iterator[str]:
    """Yield the name of each band of ranks."""
    for lower, upper in pairwise((0, *RANK_BOUNDS)):
        yield f"{upper}" if upper == lower + 1 else f"{lower + 1}-{upper}"
    yield f"{RANK_BOUNDS[-1] + 1}-"


_BANDS: Final = tuple(_bands())


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeCollector(Collector):
    """Outcomes by policy and namespace; they stand still on replicas that do not lead."""

    controller: OutcomeController

    def collect(self) -> Iterator[Metric]:
        yield self._counter(
            "stowplan_outcome_pods",
            "Pods that were bound, advised or decided at their binding, by whether they landed"
            " where they were meant to.",
            "landed",
            lambda each: {"as-meant": each.landed, "elsewhere": each.pods - each.landed},
        )
        yield self._counter(
            "stowplan_outcome_ranks",
            "Pods that were decided at their binding, by the rank of their node among the"
            " candidates of the policies.",
            "rank",
            lambda each: dict(
                zip((*_BANDS, "rejected"), (*each.ranks, each.rejected), strict=True)
            ),
        )
        yield self._counter(
            "stowplan_outcome_points",
            "Points by the scores of a policy, added up over the pods that it scored: of the node"
            " that they landed on, and of the one ranked first.",
            "node",
            lambda each: {"landed": each.points / POINT, "best": each.best / POINT},
        )
        yield self._counter(
            "stowplan_outcome_scored_pods",
            "Pods in these points.",
            "",
            lambda each: {"": each.scored},
        )
        yield self._counter(
            "stowplan_outcome_compared_points",
            "Points by the scores of a policy, added up over the pods that it has a node for at"
            " their binding: of that node, and of the one that the scheduler took.",
            "node",
            lambda each: {
                "chosen": each.compared_points / POINT,
                "stock": each.stock_points / POINT,
            },
        )
        yield self._counter(
            "stowplan_outcome_compared_pods",
            "Pods in these points.",
            "",
            lambda each: {"": each.compared},
        )
        yield self._counter(
            "stowplan_outcome_hot_pods",
            "Pods for which the node of the policies, or the one that the scheduler took, was above"
            " the threshold of usage.",
            "node",
            lambda each: {"chosen": each.hot, "stock": each.stock_hot},
        )
        yield from self._of_rules()
        yield from self._of_policies()

    def _counter(
        self, name: str, text: str, label: str, values: Callable[[OutcomeFigures], dict[str, float]]
    ) -> Metric:
        labels = (*_SERIES, label) if label else _SERIES
        metric = CounterMetricFamily(name, text, labels=labels)
        for series, figures in self.controller.counts.figures.items():
            for value, count in values(figures).items():
                metric.add_metric([*series, value] if label else [*series], count)
        return metric

    def _of_rules(self) -> Iterator[Metric]:
        rejections = CounterMetricFamily(
            "stowplan_outcome_rule_rejections",
            "Pods that landed on a node which a filter of a policy rejects.",
            labels=("policy", "mode", "rule"),
        )
        for series, pods in self.controller.counts.rules.items():
            rejections.add_metric([*series], pods)
        yield rejections

    def _of_policies(self) -> Iterator[Metric]:
        worse = GaugeMetricFamily(
            "stowplan_outcome_policy_worse",
            "1 for a policy that makes things worse than the scheduler alone would.",
            labels=["policy"],
        )
        for name in self.controller.worse:
            worse.add_metric([name], 1)
        audited = GaugeMetricFamily(
            "stowplan_outcome_policy_audited",
            "1 for a policy that is in Audit mode for what it did.",
            labels=["policy"],
        )
        for name in self.controller.audited_policies:
            audited.add_metric([name], 1)
        yield from (worse, audited)
