"""Reviews of bindings: `/bind` of the mutating webhook."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.binding import (
    BindingAction,
    BindingDecision,
    BindingReason,
    BindingTicket,
    encode_binding,
)
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult, ignored
from webhook.admission.wire import AdmissionError, AdmissionRequest, UndecidedError
from webhook.binding.decider import AskedBinding, BindingDecider, MadeDecision


@dataclass(frozen=True, slots=True, eq=False)
class BindingCollector(Collector):
    """What became of bindings, read at each scrape; the counts stand still on other replicas.

    Their time is in `stowplan_review_seconds` of the path `bind`.

    Attributes:
        decider: of this replica.
    """

    decider: BindingDecider

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        decider, status = self.decider, self.decider.status()
        decided = CounterMetricFamily(
            "stowplan_bindings",
            "Bindings that were decided, by what became of them and why.",
            labels=["action", "reason"],
        )
        for (action, reason), count in decider.counters.decided.items():
            decided.add_metric([str(action), str(reason)], count)
        yield decided
        moved = CounterMetricFamily(
            "stowplan_bindings_moved",
            "Pods that were moved at their binding, or would have been, by policy and its mode.",
            labels=["policy", "mode"],
        )
        for of_policy, count in decider.moved.items():
            moved.add_metric(of_policy, count)
        yield moved
        yield CounterMetricFamily(
            "stowplan_bindings_escaped",
            "Pods that were bound without our answer, or elsewhere than answered.",
            value=status.escaped,
        )
        yield CounterMetricFamily(
            "stowplan_binding_answers_lost",
            "Answers to bindings that the API server cannot have got.",
            value=status.lost,
        )
        yield GaugeMetricFamily(
            "stowplan_binding_moves_paused",
            "Whether no pod is moved for a while, of the replica that decides.",
            value=bool(status.paused),
        )
        yield GaugeMetricFamily(
            "stowplan_waiting_pods",
            "Pods that wait for the scheduler, as this replica sees them.",
            value=decider.waiting,
        )


_OUTCOMES: Final = {
    BindingAction.KEEP: Outcome.KEPT,
    BindingAction.MOVE: Outcome.MOVED,
    BindingAction.DENY: Outcome.DENIED,
}


class BindingResult(ReviewResult, frozen=True, kw_only=True):
    """The result of a review of a binding, with the decision that it is made of."""

    made: MadeDecision


class BindingReviews:
    """Translates reviews of bindings for a decider, and its decisions into responses.

    A replica that does not lead answers nothing: the failure policy says what becomes of the
    binding. An answer without a decision would let it pass unseen by the leader, whatever that
    policy says.

    Args:
        decider: decides.
    """

    def __init__(self, decider: BindingDecider) -> None:
        self._decider = decider
        self._noted: dict[str, BindingTicket] = {}  # by uid of the reviews that are in flight

    def arrived(self, request: AdmissionRequest) -> None:
        """Note a binding before it waits for its turn."""
        with suppress(AdmissionError):  # it is told when its turn comes
            asked = self._asked(request)
            if asked is not None and self._decider.may_decide:
                self._noted[request.uid] = self._decider.note(asked)

    def review(self, request: AdmissionRequest) -> ReviewResult | Awaitable[ReviewResult]:
        """Decide on a binding; that of a pod which is not seen yet waits for a moment.

        Raises:
            AdmissionError: the object is not a binding.
            UndecidedError: this replica must not answer it.
        """
        asked = self._asked(request)
        if asked is None:
            return ignored(request)
        if self._decider.knows(asked):
            return self._decided(request, asked, in_haste=False)
        return self._decided_once_seen(request, asked)

    def undecided(self, request: AdmissionRequest, outcome: Outcome, _reason: str) -> ReviewResult:
        """Decide on a binding that there is no time for: by room alone; see `review`."""
        asked = self._asked(request)
        if asked is None:
            return ignored(request)
        result = self._decided(request, asked, in_haste=True)
        return msgspec.structs.replace(result, outcome=outcome)

    def answered(self, result: ReviewResult, *, is_lost: bool) -> None:
        """Note that an answer is written, or that it cannot reach the API server."""
        if isinstance(result, BindingResult):
            self._decider.answered(result.made, is_lost=is_lost)

    def _asked(self, request: AdmissionRequest) -> AskedBinding | None:
        """Return the binding of a pod to a node; None for anything else."""
        if not request.binds_pod:
            return None
        binding = request.binding()
        if request.dry_run or not binding.target.is_node:
            return None  # no pod is bound: the ledger must not wait for one
        return AskedBinding(
            namespace=request.namespace,
            name=binding.metadata.name or request.name,
            uid=binding.metadata.uid,
            node=binding.target.name,
        )

    async def _decided_once_seen(
        self, request: AdmissionRequest, asked: AskedBinding
    ) -> ReviewResult:
        if self._decider.may_decide:
            await self._decider.appears(asked)
        return self._decided(request, asked, in_haste=False)

    def _decided(
        self, request: AdmissionRequest, asked: AskedBinding, *, in_haste: bool
    ) -> ReviewResult:
        noted = self._noted.pop(request.uid, None)
        if not self._decider.may_decide:
            raise UndecidedError("this replica does not decide bindings: it does not lead, or yet")

        def encode(decision: BindingDecision) -> bytes:
            obj = msgspec.json.decode(request.object, type=dict[str, Any])
            return wire.json_patch(encode_binding(decision, obj))

        made = self._decider.decide(asked, noted, encode, in_haste=in_haste)
        if made is None:
            raise UndecidedError("the decision came too late")
        return BindingResult(
            outcome=_OUTCOMES[made.decision.action],
            response=_response(request, made),
            rule_errors=made.rule_errors,
            made=made,
        )


def _response(request: AdmissionRequest, made: MadeDecision) -> wire.AdmissionResponse:
    decision = made.decision
    audit = {"decision": decision.message}
    if decision.action is BindingAction.DENY:
        is_policy = decision.reason is BindingReason.WAITS
        status = wire.FORBIDDEN if is_policy else wire.CONFLICT
        return wire.denied(request.uid, decision.message, status=status, audit_annotations=audit)
    return wire.allowed(request.uid, patch=made.encoded, audit_annotations=audit)
