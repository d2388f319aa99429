"""A decision with all its reasons, node by node: what `explain --json` and debug pages show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from msgspec import structs

from engine.model.decision import (
    SCHEDULER,
    Decision,
    FilterOutcome,
    PlacementAt,
    RejectionSummary,
    ScoreOutcome,
    Verdict,
)
from engine.model.never_held import is_never_held
from engine.model.quantity import amount_text
from engine.model.rule_input import RuleInputs
from engine.model.time import date

_SCHEDULER_NAME = "scheduler"


class PodName(msgspec.Struct, frozen=True):
    """The pod a decision is for; a name that is still to be generated ends with `*`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class RuleScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score of one rule for one node.

    Attributes:
        raw: as the plugin or expression gave it.
        normalized: 0 to 100, over the candidates alone.
        weighted: `normalized * weight`.
    """

    policy: str
    rule: str
    raw: int | float
    normalized: int
    weight: int
    weighted: int


class RankedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, with the sum of its weighted scores."""

    node: str
    total: int
    scores: tuple[RuleScore, ...]


class RuleReason(msgspec.Struct, frozen=True):
    """The reason that a rule gives for a rejection, or for having no effect."""

    policy: str
    rule: str
    reason: str


class RuleEvaluation(msgspec.Struct, frozen=True):
    """The values that a rule evaluated for a node."""

    policy: str
    rule: str
    inputs: RuleInputs


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a decision says of one node, whatever its rank.

    Attributes:
        rank: 1 for the best, 0 if it is no candidate.
        behind: by how many points its total is below that of the best.
        rejected: every rule that rejected it.
    """

    node: str
    rank: int = 0
    behind: int = 0
    rejected: tuple[RuleReason, ...] = ()


class DecisionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A whole decision.

    Attributes:
        estimate: expected usage of the pod, as quantities.
        nodes: how many there are.
        candidates: how many of them fit.
        ranking: the candidates, best first.
        rejected: the other nodes, in order of their names, each with every rule that rejected it.
        rejected_by: number of nodes by the first rule that rejected them, and its reason.
        abstained: the rules that had no effect.
        errors: the rules that could not be evaluated.
        decided_at: ISO 8601.
        age_seconds: age of each source of the view.
        inputs: by node; None if not asked for.
        audit: the decision of policies in Audit mode, None if there are none.
        held: whether the pod is to be held until such a decision is made at its release.
        standing: of the node that was asked about; None if none was, or there is no such node.
    """

    pod: PodName
    verdict: Verdict
    message: str
    policies: tuple[str, ...]
    estimate: Mapping[str, str]
    nodes: int
    candidates: int
    ranking: tuple[RankedNode, ...]
    rejected: Mapping[str, tuple[RuleReason, ...]]
    rejected_by: tuple[RejectionSummary, ...]
    abstained: tuple[RuleReason, ...]
    errors: tuple[str, ...]
    decided_at: str
    view_version: int
    age_seconds: Mapping[str, int]
    inputs: Mapping[str, tuple[RuleEvaluation, ...]] | None = None
    audit: DecisionReport | None = None
    held: bool = False
    standing: NodeStanding | None = None


def decision_report(
    decision: Decision,
    *,
    most_nodes: int | None = None,
    most_inputs: int | None = 0,
    node: str = "",
) -> DecisionReport:
    """Return a decision with its reasons.

    Args:
        decision: what to report.
        most_nodes: most candidates, and most rejected nodes (any of them), to list; None for all.
        most_inputs: most of these for which to list the inputs of rules. Inputs take some 30
            microseconds per node and rule, so by default there are none.
        node: whose standing is asked for; "" for none.
    """
    rejected = _rejected_rows(decision, most_nodes)
    inputs = None
    if most_inputs != 0:
        candidates = decision.best(most_nodes)[:most_inputs].tolist()
        inputs = {
            decision.names[row]: tuple(_inputs(decision, row))
            for row in (*candidates, *rejected[:most_inputs])
        }
    return DecisionReport(
        pod=PodName(decision.pod.namespace, decision.pod.display_name),
        verdict=decision.verdict,
        message=decision.message,
        policies=decision.policies,
        estimate={name: amount_text(name, n) for name, n in decision.estimate.items()},
        nodes=int(np.count_nonzero(decision.valid)),
        candidates=len(decision.ranking),
        ranking=tuple(_ranking(decision, most_nodes)),
        rejected={decision.names[row]: tuple(_rejections(decision, row)) for row in rejected},
        rejected_by=tuple(
            structs.replace(out, policy=_named(out.policy)) for out in decision.rejection_summaries
        ),
        abstained=tuple(_without_effect(decision)),
        errors=decision.errors,
        decided_at=date(decision.decided_at).isoformat(),
        view_version=decision.view_version,
        age_seconds=dict(decision.ages),
        inputs=inputs,
        audit=None
        if decision.audit is None
        else decision_report(
            decision.audit, most_nodes=most_nodes, most_inputs=most_inputs, node=node
        ),
        held=decision.placement.at is PlacementAt.RELEASE and not is_never_held(decision.pod),
        standing=_standing(decision, node) if node and node in decision.names else None,
    )


def _standing(decision: Decision, node: str) -> NodeStanding:
    row = decision.names.index(node)
    places = np.flatnonzero(decision.candidates == row)
    if not places.size:
        return NodeStanding(node=node, rejected=tuple(_rejections(decision, row)))
    place = int(places[0])
    behind = int(decision.totals[0] - decision.totals[place])
    return NodeStanding(node=node, rank=place + 1, behind=behind)


def _named(policy: str) -> str:
    return _SCHEDULER_NAME if policy == SCHEDULER else policy


def _ranking(decision: Decision, most: int | None) -> Iterator[RankedNode]:
    rows, totals = decision.best(most).tolist(), decision.totals[:most].tolist()
    columns = [
        (score, score.raw.tolist(), score.normalized.tolist())
        for score in decision.best_scores(most)
    ]
    for i, (row, total) in enumerate(zip(rows, totals, strict=True)):
        scores = (
            RuleScore(
                policy=score.policy,
                rule=score.rule,
                raw=raw[i],
                normalized=normalized[i],
                weight=score.weight,
                weighted=normalized[i] * score.weight,
            )
            for score, raw, normalized in columns
        )
        yield RankedNode(node=decision.names[row], total=total, scores=tuple(scores))


def _rejected_rows(decision: Decision, most: int | None) -> list[int]:
    """Return the rows of rejected nodes, in order of their names; any of them if cut short."""
    rejected = np.zeros(decision.valid.size, np.bool_)
    for outcome in decision.filters:
        rejected |= outcome.rejects
    rows = np.flatnonzero(rejected & decision.valid)[:most].tolist()
    return sorted(rows, key=lambda row: decision.names[row])


def _rejections(decision: Decision, row: int) -> Iterator[RuleReason]:
    for outcome in decision.filters:
        if outcome.rejects[row]:
            yield RuleReason(_named(outcome.policy), outcome.rule, outcome.reason(row))


def _without_effect(decision: Decision) -> Iterator[RuleReason]:
    """Yield each rule that decided nothing, once if it both filters and scores."""
    filters = (
        (outcome.policy, outcome.rule, ", ".join(outcome.abstained.values()))
        for outcome in decision.filters
        if outcome.abstained
    )
    scores = ((score.policy, score.rule, score.reason) for score in decision.scored if score.reason)
    for policy, rule, reason in dict.fromkeys((*filters, *scores)):
        yield RuleReason(_named(policy), rule, reason)


def _inputs(decision: Decision, row: int) -> Iterator[RuleEvaluation]:
    """Yield the inputs of the rules that rejected a node, or else of all rules of the policies.

    A filter and a score with the same inputs are listed once.
    """
    rules: list[FilterOutcome | ScoreOutcome] = []
    rules += (outcome for outcome in decision.filters if outcome.rejects[row])
    if not rules:
        rules += (outcome for outcome in decision.filters if outcome.policy != SCHEDULER)
        rules += decision.scored
    listed: list[RuleEvaluation] = []
    for rule in rules:
        evaluation = RuleEvaluation(_named(rule.policy), rule.rule, rule.inputs(row))
        if evaluation.inputs and evaluation not in listed:
            listed.append(evaluation)
            yield evaluation
