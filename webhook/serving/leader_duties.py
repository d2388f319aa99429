"""What this replica does while it leads, once there are policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from engine.model.time import Micros, date
from engine.policy import PolicySet
from engine.reclaim import NodeFit
from engine.view import WhatIf
from webhook.background import in_background
from webhook.binding import BindingRecords
from webhook.cluster import Cluster
from webhook.controllers.node_marks.controller import MarkedCluster, NodeMarkController
from webhook.controllers.node_marks.metrics import NodeMarkCollector
from webhook.controllers.node_marks.writer import NodeWriter
from webhook.controllers.outcome import OutcomeController
from webhook.controllers.policy_status import PolicyObservations, PolicyStatusController
from webhook.controllers.release import QuotaQueue, SurgingPods
from webhook.metrics import Metrics
from webhook.placement.held_pods import HeldPod
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts
from webhook.serving.judging import outcome_controller
from webhook.serving.reclaiming import reclaim_controller
from webhook.serving.releasing import ReleaseServices, release_controller
from webhook.serving.services import Leadership, Services
from webhook.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderDuties:
    """Gives the elector the tasks that read policies.

    Attributes:
        cluster: the cluster.
        settings: the settings.
        placer: decides.
        policies: those in force.
        counts: where decisions are counted.
        metrics: where the tasks are counted.
        now: the time of day.
    """

    cluster: Cluster
    settings: Settings
    placer: Placer
    policies: LivePolicies
    counts: PolicyCounts
    metrics: Metrics
    now: Callable[[], Micros]

    def take_up(self, services: Services, stack: AsyncExitStack) -> OutcomeController | None:
        """Give the elector the tasks that the settings ask for; none on a recording.

        Args:
            services: what the tasks work with.
            stack: unwinds when this replica stops to follow the leader.

        Returns:
            The task that judges where pods are bound; None where nobody does.
        """
        outcome = None
        if services.leadership is not None:
            self._mark_nodes(services.leadership)
            decided = services.binding.records if services.binding else BindingRecords()
            outcome = self._judge_outcomes(services.leadership, decided, stack)
            if services.policy_resources is not None:
                self._write_policy_status(services.leadership, outcome)
        if services.releasing is not None:
            self._release(services.releasing)
        return outcome

    def _mark_nodes(self, leadership: Leadership) -> None:
        """Mark nodes by the policies in force, or take marks back."""
        cluster, elector, collector = self.cluster, leadership.elector, NodeMarkCollector()
        marked = MarkedCluster(
            view=cluster.view,
            now=cluster.now,
            freshness=cluster.freshness,
            policies=self._marking_policies,
        )
        writer = NodeWriter(leadership.connection, may_write=lambda: elector.is_leader)
        controller = NodeMarkController(
            marked, writer, show=collector.show, count_write=collector.count_write
        )
        self.metrics.registry.register(collector)
        elector.add_duty(controller.run)

    def _marking_policies(self) -> PolicySet | None:
        """Return the policies by which nodes are marked, None while nobody knows them."""
        if not (self.cluster.is_synced and self.policies.is_loaded):
            return None
        return self.policies.current if self.settings.node_marks else PolicySet()

    def _judge_outcomes(
        self, leadership: Leadership, decided: BindingRecords, stack: AsyncExitStack
    ) -> OutcomeController | None:
        """Let the leader judge the pods that are bound, and all replicas follow its judgement."""
        if leadership.bindings is None:
            return None
        controller, audited = outcome_controller(
            leadership,
            leadership.bindings,
            decided,
            self.cluster,
            placer=self.placer,
            policies=self.policies,
            settings=self.settings,
            registry=self.metrics.registry,
            now=self.now,
        )
        in_background(stack, audited.follow())
        return controller

    def _write_policy_status(
        self, leadership: Leadership, outcome: OutcomeController | None
    ) -> None:
        """Write the status of policies of the API."""
        policies, elector = self.policies, leadership.elector
        observations = PolicyObservations(
            policies, self.counts, None if outcome is None else outcome.report, time.monotonic
        )
        controller = PolicyStatusController(
            leadership.connection,
            standings=lambda: policies.standings if policies.is_loaded else (),
            facts=observations.read,
            today=lambda: f"{date(self.now()):%Y-%m-%dT%H:%M:%SZ}",
            may_write=lambda: elector.is_leader,
        )
        elector.add_duty(controller.run)

    def _release(self, services: ReleaseServices) -> None:
        """Release held pods, and evict others for them."""
        cluster, settings = self.cluster, self.settings
        quota_queue = QuotaQueue(
            cluster.state,
            services.held,
            services.unbound,
            settings.queue_rules(),
            now=self.now,
            reclaims=settings.reclaims,
            surges=SurgingPods(cluster.state, services.deployments.replaced_by),
        )
        controller, gangs = release_controller(
            services,
            cluster,
            placer=self.placer,
            policies=self.policies,
            counts=self.counts,
            order=settings.queue_order(),
            quota_queue=quota_queue,
            node_for=self._node_for,
            recreates_gangs=settings.recreate_gangs,
            registry=self.metrics.registry,
            now=self.now,
        )
        if services.running is not None:
            reclaim = reclaim_controller(
                services,
                cluster,
                running=services.running,
                gangs=gangs,
                quota_queue=quota_queue,
                policies=self.policies,
                settings=settings,
                registry=self.metrics.registry,
                now=self.now,
            )
            # First: whoever is reclaimed for is not released.
            services.elector.add_duty(reclaim.run)
        services.elector.add_duty(controller.run)

    def _node_for(self, held: HeldPod) -> str:
        """Return a node that would take a held pod that counts on none, "" for none."""
        cluster = self.cluster
        view = cluster.state.view()
        fit = NodeFit(
            held.placement_request,
            self.policies.current,
            view,
            cluster.now(),
            self.settings.scope(),
            cluster.freshness(),
        )
        return fit.first(WhatIf(view))
