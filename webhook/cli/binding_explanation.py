"""What became of a pod at its binding: the two nodes, and what each rule says of them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from rich.console import Console
from rich.markup import escape

from engine.binding import BINDING_REASON_ANNOTATION, SCHEDULER_NODE_ANNOTATION
from engine.model.decision import Decision
from engine.model.rule_outcomes import SCHEDULER
from engine.placement import REASON_ANNOTATION
from webhook.cli.tables import plain_table


class RuleOnNodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a rule says of both nodes: of a filter why it rejects them, of a score the points.

    Attributes:
        policy: the policy it belongs to, "scheduler" for the scheduler's own.
        rule: its name.
        on_scheduler_node: "" where a filter passes, or where a score gives none.
        on_node: likewise.
    """

    policy: str
    rule: str
    on_scheduler_node: str
    on_node: str


class BindingExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that was decided at its binding.

    Attributes:
        scheduler_node: the node that the scheduler took.
        node: the node that the pod is on.
        reason: why, for programs.
        message: why, for people.
        rules: what rules say of both nodes now, as if the pod was not there.
    """

    scheduler_node: str
    node: str
    reason: str
    message: str
    rules: tuple[RuleOnNodes, ...]

    def __str__(self) -> str:
        """Return it in a line, in the markup of a terminal."""
        why = escape(self.message or self.reason)
        node, scheduler_node = escape(self.node), escape(self.scheduler_node)
        if self.node == self.scheduler_node:
            return f"bound to {node}, as the scheduler chose: {why}"
        return f"bound to {node} instead of {scheduler_node}, the scheduler's choice: {why}"


def binding_explanation(
    annotations: Mapping[str, str], node: str, decision: Decision
) -> BindingExplanation | None:
    """Return what became of a pod at its binding, None where nothing was decided then.

    Args:
        annotations: of the pod.
        node: that it is on, "" for none.
        decision: for the pod, as it would be now.
    """
    scheduler_node = annotations.get(SCHEDULER_NODE_ANNOTATION, "")
    if not (scheduler_node and node):
        return None
    return BindingExplanation(
        scheduler_node=scheduler_node,
        node=node,
        reason=annotations.get(BINDING_REASON_ANNOTATION, ""),
        message=annotations.get(REASON_ANNOTATION, ""),
        rules=tuple(_rules(decision, scheduler_node, node)),
    )


def show_binding(console: Console, found: BindingExplanation) -> None:
    """Print both nodes, rule by rule; of filters only those that reject one of them."""
    console.print(str(found))
    if not found.rules or found.node == found.scheduler_node:
        return
    console.print("[dim]what rules say of both nodes now, without the pod:[/]")
    table = plain_table("policy", "rule", found.scheduler_node, found.node)
    for each in found.rules:
        row = (each.policy, each.rule, each.on_scheduler_node or "-", each.on_node or "-")
        table.add_row(*map(escape, row))
    console.print(table)


def _rules(decision: Decision, scheduler_node: str, node: str) -> Iterator[RuleOnNodes]:
    names = {name: row for row, name in enumerate(decision.names)}
    rows = names.get(scheduler_node), names.get(node)
    for outcome in decision.filters:
        texts = [
            outcome.reason(row) if row is not None and outcome.rejects[row] else "" for row in rows
        ]
        if any(texts):
            yield _on_nodes(outcome.policy, outcome.rule, texts)
    places = {int(row): place for place, row in enumerate(decision.ranking.rows.tolist())}
    for score in decision.scored:
        at = [None if row is None else places.get(row) for row in rows]
        texts = ["" if place is None else f"{int(score.normalized[place])} points" for place in at]
        yield _on_nodes(score.policy, score.rule, texts)


def _on_nodes(policy: str, rule: str, texts: list[str]) -> RuleOnNodes:
    policy = "scheduler" if policy == SCHEDULER else policy
    return RuleOnNodes(policy=policy, rule=rule, on_scheduler_node=texts[0], on_node=texts[1])
