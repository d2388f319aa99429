"""A decision with all its reasons, node by node: what `explain --json` and debug pages show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.model.decision import Decision, RejectionSummary, Verdict
from engine.model.pod import Pod, is_never_held
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, RuleInputs, ScoreOutcome, and_not
from engine.model.time import Micros, date

_MOST_NODES = 3
_MOST_RULES = 3
_MOST_REASONS = 10


def summary(decision: Decision) -> str:
    """Return the decision in one line, with its reasons.

    `2 of 5 nodes fit, best node2, node4; left out: 2 LimitAware, 1 LoadAware`, or with the most
    common reasons if no node fits: `0 of 5 nodes fit; left out: 5 LimitAware (Insufficient ...)`.
    Rules that abstained come last: `...; abstained: LoadAware (usage is 95 s old)`.
    """
    return "; ".join([*_fit(decision), *_abstentions(decision)])


def _fit(decision: Decision) -> Iterator[str]:
    """Yield the number of nodes that fit, and the rules that rejected the others."""
    candidates = len(decision.ranking)
    nodes = candidates + sum(decision.first_rejections)
    if not nodes:
        yield "no node is known"
        return
    fit = f"{candidates} of {nodes} nodes fit"
    if candidates:
        fit += f", best {', '.join(_best_names(decision))}"
        counts = zip(decision.filters, decision.first_rejections, strict=True)
        left_out = [f"{nodes} {outcome.rule}" for outcome, nodes in counts if nodes]
    else:
        left_out = list(_reasons(decision))
    yield fit
    if left_out:
        yield f"left out: {', '.join(left_out)}"


def _abstentions(decision: Decision) -> Iterator[str]:
    """Yield the rules that abstained: for each set of stale sources the first few of them."""
    rules: dict[str, dict[str, None]] = {}
    applied: tuple[FilterOutcome | ScoreOutcome, ...] = (*decision.filters, *decision.scored)
    for rule in applied:
        if rule.abstained:
            rules.setdefault(", ".join(rule.abstained.values()), {})[rule.rule] = None
    abstentions = []
    for reason, names in rules.items():
        more = ["..."] if len(names) > _MOST_RULES else []
        abstentions.append(f"{', '.join([*islice(names, _MOST_RULES), *more])} ({reason})")
    if abstentions:
        yield f"abstained: {', '.join(abstentions)}"


def _best_names(decision: Decision) -> list[str]:
    """Return the first few nodes that share the best score."""
    ranking = decision.ranking
    best = ranking.given_totals.take(ranking.best(_MOST_NODES + 1)).tolist()
    shared = best.count(best[0])
    names = [decision.names[row] for row in decision.best(min(shared, _MOST_NODES)).tolist()]
    return [*names, "..."] if shared > _MOST_NODES else names


def _reasons(decision: Decision) -> Iterator[str]:
    """Yield the most common reasons for rejecting nodes, and the number of nodes with others.

    A cluster may have as many reasons as nodes, such as one taint each.
    """
    left_out = sorted(decision.rejection_summaries, key=lambda out: -out.nodes)
    for out in left_out[:_MOST_REASONS]:
        yield f"{out.nodes} {out.rule} ({out.reason})"
    if len(left_out) > _MOST_REASONS:
        yield f"{sum(out.nodes for out in left_out[_MOST_REASONS:])} for other reasons"


class PodName(msgspec.Struct, frozen=True):
    """The pod a decision is for; a name that is still to be generated ends with `*`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class RuleScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score of one rule for one node."""

    policy: str
    rule: str
    raw: int | float  # as the plugin or expression gave it
    normalized: int  # 0 to 100, over the candidates alone
    weight: int
    weighted: int  # `normalized * weight`


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


class RuleKind(StrEnum):
    """What a rule does."""

    FILTER = "filter"
    SCORE = "score"


class RuleEvaluation(msgspec.Struct, frozen=True):
    """The values that a rule evaluated for a node; `kind` is that of the rule."""

    policy: str
    rule: str
    inputs: RuleInputs
    kind: RuleKind


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


class BindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a binding.

    Attributes:
        action: Keep, Move or Deny.
        reason: why, for programs.
        scheduler_node: the node that the scheduler took.
        node: the node that the pod got; where it was denied, the scheduler's.
        message: why, for people.
    """

    action: str
    reason: str
    scheduler_node: str
    node: str
    message: str


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
        held: whether policies have the pod held before the scheduler sees it.
        standing: of the node that was asked about; None if none was, or there is no such node.
        binding: what became of the binding that it was made for; None if it was made for none.
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
    binding: BindingReport | None = None


# A report of a decision is made of an excerpt of it, which holds no column of the nodes.
#
# Few decisions are ever read about, and a `Decision` keeps its view alive: so what is kept of one
# is its excerpt, and the report is made when somebody reads it.


_SCHEDULER_NAME = "scheduler"


class ScoreExcerpt(msgspec.Struct, frozen=True, array_like=True):
    """The scores of one rule for the listed candidates, best first; see `RuleScore`."""

    policy: str
    rule: str
    weight: int
    raw: Sequence[int | float]
    normalized: Sequence[int]

    def of(self, place: int) -> RuleScore:
        """Return the score of the candidate at a place of the list."""
        normalized = self.normalized[place]
        return RuleScore(
            policy=self.policy,
            rule=self.rule,
            raw=self.raw[place],
            normalized=normalized,
            weight=self.weight,
            weighted=normalized * self.weight,
        )


class DecisionExcerpt(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The numbers and names of a decision that its report is made of; see `DecisionReport`.

    Attributes:
        estimate: expected usage of the pod, base units.
        ranked: the listed candidates, best first.
        totals: of these.
        scores: of these, in policy order.
        rejected: the listed rejected nodes, in order of their names.
    """

    pod: PodName
    verdict: Verdict
    message: str
    decided_at: Micros
    policies: tuple[str, ...] = ()
    estimate: Amounts = {}
    nodes: int = 0
    candidates: int = 0
    ranked: Sequence[str] = ()
    totals: Sequence[int] = ()
    scores: Sequence[ScoreExcerpt] = ()
    rejected: Mapping[str, tuple[RuleReason, ...]] = {}
    rejected_by: tuple[RejectionSummary, ...] = ()
    abstained: tuple[RuleReason, ...] = ()
    errors: tuple[str, ...] = ()
    view_version: int = 0
    ages: Mapping[str, int] = {}
    audit: DecisionExcerpt | None = None
    held: bool = False
    binding: BindingReport | None = None

    def report(self) -> DecisionReport:
        """Return the decision with its reasons, without inputs of rules."""
        return DecisionReport(
            pod=self.pod,
            verdict=self.verdict,
            message=self.message,
            policies=self.policies,
            estimate={name: amount_text(name, n) for name, n in self.estimate.items()},
            nodes=self.nodes,
            candidates=self.candidates,
            ranking=tuple(
                RankedNode(
                    node=node,
                    total=self.totals[place],
                    scores=tuple(score.of(place) for score in self.scores),
                )
                for place, node in enumerate(self.ranked)
            ),
            rejected=self.rejected,
            rejected_by=self.rejected_by,
            abstained=self.abstained,
            errors=self.errors,
            decided_at=date(self.decided_at).isoformat(),
            view_version=self.view_version,
            age_seconds=self.ages,
            audit=None if self.audit is None else self.audit.report(),
            held=self.held,
            binding=self.binding,
        )


def binding_excerpt(
    pod: Pod,
    decision: Decision | None,
    binding: BindingReport,
    now: Micros,
    most_nodes: int | None = None,
) -> DecisionExcerpt:
    """Return what a report of a binding is made of.

    Args:
        pod: that was bound.
        decision: what rules say of all nodes; None where they were not asked.
        binding: what became of it.
        now: the moment.
        most_nodes: see `excerpt_of`.
    """
    is_denied = binding.action == "Deny"
    if decision is not None:
        found = excerpt_of(decision, most_nodes)
        verdict = Verdict.DENY if is_denied else found.verdict
        return structs.replace(found, verdict=verdict, message=binding.message, binding=binding)
    return DecisionExcerpt(
        pod=PodName(pod.namespace, pod.display_name),
        verdict=Verdict.DENY if is_denied else Verdict.ABSTAIN,
        message=binding.message,
        decided_at=now,
        binding=binding,
    )


def excerpt_of(decision: Decision, most_nodes: int | None = None) -> DecisionExcerpt:
    """Return what a report of a decision is made of.

    Args:
        decision: what to report.
        most_nodes: most candidates, and most rejected nodes (any of them), to list; None for all.
    """
    names, best = decision.names, decision.ranking.best(most_nodes)
    return DecisionExcerpt(
        pod=PodName(decision.pod.namespace, decision.pod.display_name),
        verdict=decision.verdict,
        message=decision.message,
        policies=decision.policies,
        estimate=decision.estimate,
        nodes=int(np.count_nonzero(decision.valid)),
        candidates=len(decision.ranking),
        ranked=[names[row] for row in decision.ranking.rows[best].tolist()],
        totals=decision.ranking.given_totals.take(best).tolist(),
        scores=_scores(decision, best),
        rejected=_rejected(decision, _rejected_rows(decision, most_nodes)),
        rejected_by=tuple(
            [
                structs.replace(summary, policy=_SCHEDULER_NAME)
                if summary.policy == SCHEDULER
                else summary
                for summary in decision.rejection_summaries
            ]
        ),
        abstained=tuple(_without_effect(decision)),
        errors=decision.errors,
        decided_at=decision.decided_at,
        view_version=decision.view_version,
        ages=decision.ages,
        audit=None if decision.audit is None else excerpt_of(decision.audit, most_nodes),
        held=bool(decision.placement.hold_reasons) and not is_never_held(decision.pod),
    )


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
    report = excerpt_of(decision, most_nodes).report()
    return _with_details(report, decision, most_nodes, most_inputs, node)


def _with_details(
    report: DecisionReport,
    decision: Decision,
    most_nodes: int | None,
    most_inputs: int | None,
    node: str,
) -> DecisionReport:
    """Return a report with what is evaluated on the view: inputs, and the standing of a node."""
    inputs = audit = None
    if most_inputs != 0:
        candidates = decision.best(most_nodes)[:most_inputs].tolist()
        rejected = _rejected_rows(decision, most_nodes)[:most_inputs]
        inputs = {
            decision.names[row]: tuple(_inputs(decision, row)) for row in (*candidates, *rejected)
        }
    if report.audit is not None and decision.audit is not None:
        audit = _with_details(report.audit, decision.audit, most_nodes, most_inputs, node)
    standing = _standing(decision, node) if node and node in decision.names else None
    return structs.replace(report, inputs=inputs, audit=audit, standing=standing)


def _scores(decision: Decision, best: NDArray[np.intp]) -> list[ScoreExcerpt]:
    return [
        ScoreExcerpt(
            score.policy,
            score.rule,
            score.weight,
            score.raw.take(best).tolist(),
            score.normalized.take(best).tolist(),
        )
        for score in decision.scored
    ]


def _standing(decision: Decision, node: str) -> NodeStanding:
    row = decision.names.index(node)
    places = np.flatnonzero(decision.candidates == row)
    if not places.size:
        return NodeStanding(node=node, rejected=_rejected(decision, [row])[node])
    place = int(places[0])
    behind = int(decision.totals[0] - decision.totals[place])
    return NodeStanding(node=node, rank=place + 1, behind=behind)


def _named(policy: str) -> str:
    return _SCHEDULER_NAME if policy == SCHEDULER else policy


def _rejected_rows(decision: Decision, most: int | None) -> list[int]:
    """Return the rows of rejected nodes, in order of their names; any of them if cut short."""
    if not decision.left:
        return []
    rows = and_not(decision.valid, decision.left[-1]).nonzero()[0][:most].tolist()
    return sorted(rows, key=decision.names.__getitem__)


def _rejected(decision: Decision, rows: Sequence[int]) -> dict[str, tuple[RuleReason, ...]]:
    """Return every rule that rejects a node, by the names of nodes; rule by rule, then by node."""
    reasons: list[list[RuleReason]] = [[] for _ in rows]
    picked = np.array(rows, np.intp)
    for outcome in decision.filters if rows else ():
        rejects = outcome.rejects[picked].tolist()
        if True not in rejects:
            continue
        known: dict[int, RuleReason] = {}
        for of_node, is_rejected, code in zip(
            reasons, rejects, outcome.codes[picked].tolist(), strict=True
        ):
            if not is_rejected:
                continue
            if code not in known:
                text = outcome.explainer.reason(code) if code else ""
                known[code] = RuleReason(_named(outcome.policy), outcome.rule, text)
            of_node.append(known[code])
    return {decision.names[row]: tuple(of_node) for row, of_node in zip(rows, reasons, strict=True)}


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
    listed = []
    for rule in rules:
        kind = RuleKind.FILTER if isinstance(rule, FilterOutcome) else RuleKind.SCORE
        found = _named(rule.policy), rule.rule, rule.inputs(row)
        if found[-1] and found not in listed:
            listed.append(found)
            yield RuleEvaluation(*found, kind)


class PodReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod.

    Attributes:
        node: that it is bound to, "" for none.
        expected_node: that it counts on without being bound: advised or nominated; "" for none.
        is_held: whether our gate keeps it from the scheduler.
        binding: what became of it at its binding; None where nothing was decided then.
        noted: the reason that its decision wrote on it, in one line; "" for none.
        recorded: the decision that was made for it; None where it is not remembered.
        now: the decision if it were created now and were nowhere yet; None where there is none.
        problem: why there is no decision now, "" where there is one.
    """

    pod: PodName
    node: str = ""
    expected_node: str = ""
    is_held: bool = False
    binding: BindingReport | None = None
    noted: str = ""
    recorded: DecisionReport | None = None
    now: DecisionReport | None = None
    problem: str = ""
