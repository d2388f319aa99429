"""`stowplan eval`: the value of an expression for each node of a recorded cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeInt

from engine.cel import CelError, Program, plain_value
from engine.errors import StowplanError, counted
from engine.policy import NodeValues, node_values, pod_fields_read, read_expression
from engine.report import NodeNames
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster, moment_of, tell_missing
from webhook.cli.exit_codes import Exit
from webhook.cli.options import ClusterPaths, DefaultNamespace, Json, Moment, PolicyPaths, described
from webhook.cli.pods import placement_request, read_manifest
from webhook.cli.policy_loading import load_policy_set
from webhook.cli.render import show, show_json
from webhook.pages import ui

_NODES: Final = 20
_EXPRESSION: Final = "<expression>"
_NO_POD: Final[dict[str, Any]] = {"metadata": {}, "spec": {}}
"""Stands in where nothing is read of the pod."""


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The value of an expression for each node."""

    type: str  # of the expression, `dyn` where it is known only at run time
    values: Mapping[str, Any]  # by node, as JSON; those of nodes without one are left out
    errors: Mapping[str, str]  # by node, why there is no value
    value: Any  # of an expression that reads no node
    error: str  # why such an expression has no value, "" where it has one
    variable_errors: tuple[str, ...]  # why variables could not be computed, a line each
    # how all nodes are evaluated at once, the whole expression first; empty for an expression that
    # is neither a filter nor a score
    parts: tuple[PartReport, ...]


class PartReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    text: str  # of the part
    strategy: str  # how its column is computed
    cost_micros: float  # estimated microseconds for 5,000 nodes, without its own parts


def evaluate(
    expression: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="Expression in CEL, as in a policy.")
    ],
    /,
    *,
    cluster: ClusterPaths,
    pod: Annotated[
        Path | None,
        Parameter(allow_leading_hyphen=True, help="Manifest of the pod that the expression reads."),
    ] = None,
    policies: Annotated[PolicyPaths, described("Policies whose variables it may use.")] = None,
    variable: Annotated[list[str] | None, described("Variable, as `NAME=EXPRESSION`.")] = None,
    namespace: DefaultNamespace = "default",
    now: Moment = None,
    nodes: Annotated[NonNegativeInt, described("Most nodes that are shown.")] = _NODES,
    json: Json = False,
) -> int:
    """Evaluate an expression for each node."""
    variables = _variables(policies or (), variable or ())
    program = read_expression(expression, _EXPRESSION, variables)
    _check_pod(pod, pod_fields_read(program, variables))
    recording = load_cluster(cluster, console.errors())
    tell_missing(recording, console.errors())
    moment, _ = moment_of(recording, now)
    view = recording.state.view()
    manifest = _NO_POD if pod is None else read_manifest(pod)
    notes = None if pod is None else console.errors()
    request = placement_request(manifest, namespace=namespace, view=view, notes=notes)
    values = node_values(program, view, moment, request=request, variables=variables)
    if json:
        show_json(_report(values))
    else:
        show(_document(values, nodes))
    return Exit.OK


def _variables(policies: Sequence[Path], written: Sequence[str]) -> dict[str, Program]:
    """Return the variables of policies, and those of the command line, by name."""
    variables: dict[str, Program] = {}
    for policy in load_policy_set(policies) if policies else ():
        for name, program in policy.variables.items():
            other = variables.setdefault(name, program)
            if other.source != program.source:
                raise StowplanError(
                    f"two policies have a variable `{name}`\nhint: give one policy alone"
                )
    for text in written:
        name, equals, expression = text.partition("=")
        if not (equals and name.strip().isidentifier() and expression.strip()):
            raise StowplanError(f"--variable: expected `NAME=EXPRESSION`, not `{text}`")
        place = f"<variable {name.strip()}>"
        variables[name.strip()] = read_expression(expression.strip(), place, variables)
    return variables


def _check_pod(pod: Path | None, read: frozenset[str]) -> None:
    """Refuse an expression that reads a pod, without one."""
    if pod is None and read:
        names = " and ".join(f"`{name}`" for name in sorted(read))
        raise StowplanError(
            f"the expression reads {names}\nhint: give the manifest of a pod by --pod"
        )


def _report(values: NodeValues) -> EvaluationReport:
    by_node = values.by_node or {}
    failed = isinstance(values.value, CelError)
    return EvaluationReport(
        type=str(values.program.result_type),
        values={
            node: plain_value(value)
            for node, value in by_node.items()
            if not isinstance(value, CelError)
        },
        errors={node: str(value) for node, value in by_node.items() if isinstance(value, CelError)},
        value=None if failed else plain_value(values.value),
        error=str(values.value) if failed else "",
        variable_errors=values.errors,
        parts=tuple(
            PartReport(text=part.text, strategy=part.strategy.value, cost_micros=part.cost)
            for part in (() if values.expression is None else values.expression.parts)
        ),
    )


def _document(values: NodeValues, most: int) -> Iterator[ui.Block]:
    if values.by_node is None:
        yield ui.Paragraph(_text(values.value))
        yield ui.Paragraph("the same for every node: it reads none", "quiet")
    else:
        yield ui.Paragraph(ui.strong(_summary(list(values.by_node.values()))))
        names = NodeNames.of(values.by_node)
        yield ui.Paragraph(names.note, "quiet")
        rows = [(names.short(node), _text(value)) for node, value in values.by_node.items()]
        yield ui.Table(columns=ui.columns("node", "value"), rows=rows, most=most)
    for error in values.errors:
        yield ui.Paragraph((ui.Span("could not be evaluated:", ui.Style.DOUBT), f" {error}"))
    if values.expression is None:
        kind = values.program.result_type
        yield ui.Paragraph(f"neither a filter nor a score: its type is `{kind}`")
    else:
        yield ui.Paragraph("How it is evaluated, for 5,000 nodes at once", "heading")
        for plan in values.expression.plans:
            yield ui.Paragraph(plan.describe(), "command")


def _text(value: object) -> ui.Inline:
    if isinstance(value, CelError):
        return (ui.bad("error:"), f" {value}")
    return json.dumps(plain_value(value), ensure_ascii=False)


def _summary(values: Sequence[object]) -> str:
    """Return how many nodes have which value, in a line."""
    found = [value for value in values if not isinstance(value, CelError)]
    failed = len(values) - len(found)
    parts = []
    if found and all(type(value) is bool for value in found):
        counts = Counter(found)
        parts += [f"true for {counts[True]}", f"false for {counts[False]}"]
    elif found and all(type(value) in {int, float} for value in found):
        numbers = [float(str(value)) for value in found]
        parts.append(f"{min(numbers):.6g} to {max(numbers):.6g}, on average {fmean(numbers):.6g}")
    if failed:
        parts.append(f"no value for {failed}")
    return counted(len(values), "node") + (f": {', '.join(parts)}" if parts else "")
