"""`stowplan lint`: check policies, and show how their rules take effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
from cyclopts import Parameter

from engine.errors import Diagnostic, InvalidFileError, StowplanError, counted
from engine.model.label_condition import Exactness
from engine.model.policy_resource import DynamicFilters, PlacementAt
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, PolicySet, ScoreRule
from engine.policy_lint import CHECKS, KnownCluster, PolicyWarning, joint_warnings, policy_warnings
from webhook.cli.console import run_on_changes
from webhook.cli.exit_codes import Exit
from webhook.cli.options import Json, Verbose, Watch, described
from webhook.cli.policy_loading import STANDARD_INPUT, load_policy_set
from webhook.cli.render import show, show_json
from webhook.identity import VERSION
from webhook.pages import ui

_AT_BINDING = "binding"
_MICROS_PER_MILLI = 1000


def _rules_table(policies: PolicySet) -> ui.Table:
    rows: list[ui.Row] = []
    for policy in policies:
        priority = f", priority {policy.priority}" if policy.priority else ""
        rows.append((ui.strong(policy.name), f"{policy.mode.value}{priority}"))
        for rule in policy.rules:
            does = f"score x {rule.weight}" if isinstance(rule, ScoreRule) else "filter"
            expression = _expression_of(rule)
            cost = "plugin" if expression is None else _cost(expression)
            rows.append((f"  {rule.name}", does, enforced_by(policy, rule), cost))
    columns = ui.columns("policy and rules", "does", "enforced by", "cost at 5,000 nodes")
    return ui.Table(columns=columns, rows=rows)


def enforced_by(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> str:
    """Return what sees to it that a rule holds."""
    placement = policy.placement
    is_at_binding = placement.at is PlacementAt.BINDING
    if isinstance(rule, ScoreRule):
        return _AT_BINDING if is_at_binding else "advice only"
    labels = rule.labels.summary
    names_nodes = placement.dynamic_filters is DynamicFilters.REQUIRED
    if labels.exactness is Exactness.EXACT or not (is_at_binding or names_nodes):
        return labels.summary
    rest = _AT_BINDING if is_at_binding else "node names"
    return rest if labels.exactness is Exactness.NONE else f"{labels.summary}, {rest}"


def cost_millis(rule: FilterRule | ScoreRule) -> float | None:
    """Return what an expression is estimated to take at 5,000 nodes, None for a plugin."""
    expression = _expression_of(rule)
    return None if expression is None else expression.cost / _MICROS_PER_MILLI


def _expression_of(rule: FilterRule | ScoreRule) -> NodeExpression | None:
    return rule.evaluator if isinstance(rule.evaluator, NodeExpression) else None


def _plan_blocks(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> Iterator[ui.Block]:
    """Yield how an expression is evaluated, and why labels alone cannot express it."""
    expression = _expression_of(rule)
    if expression is None:
        return
    yield ui.Paragraph(f"{policy.name}: {rule.name}", "heading")
    for plan in expression.plans:
        yield ui.Paragraph(plan.describe(), "command")
    if isinstance(rule, FilterRule):
        for reason in sorted(rule.labels.summary.reasons):
            yield ui.Paragraph(f"not by labels alone: {reason}")


def _cost(expression: NodeExpression) -> str:
    """Return the estimated cost of an expression, and the strategy of its costliest part."""
    costliest = max(expression.parts, key=lambda part: part.cost)
    return f"{expression.cost / _MICROS_PER_MILLI:.2f} ms, {costliest.strategy.value}"


@dataclass(frozen=True, slots=True)
class LintRun:
    """What came of policy files."""

    policies: PolicySet  # none where there are mistakes
    mistakes: tuple[Diagnostic, ...] = ()  # all of them, in all files
    warnings: tuple[PolicyWarning, ...] = ()  # what is valid and probably not meant

    @classmethod
    def of(cls, policies: PolicySet, cluster: KnownCluster | None = None) -> LintRun:
        """Return what came of files without a mistake."""
        alone = (policy_warnings(policy, cluster=cluster) for policy in policies)
        found = (*(each for warnings in alone for each in warnings), *joint_warnings(policies))
        return cls(policies, warnings=found)

    @classmethod
    def failed(cls, error: InvalidFileError) -> LintRun:
        return cls(PolicySet(), mistakes=error.problems)


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A mistake or a warning, with its place."""

    file: str
    line: int  # from 1; 0 means the file as a whole
    column: int  # from 1; 0 as well
    check: str  # `mistake`, or the kind of the warning
    message: str
    hint: str = ""
    policy: str = ""  # of a warning
    rule: str = ""  # the rule, variable or match condition of a warning; "" for the whole policy


class RuleSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    kind: Literal["filter", "score"]
    weight: int  # of a score; 0 for a filter
    enforced_by: str  # how a filter is written on a pod
    # what an expression is estimated to take at 5,000 nodes; None for a plugin
    cost_millis: float | None


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy without mistakes."""

    name: str
    file: str
    mode: str
    priority: int
    rules: tuple[RuleSummary, ...]


class LintReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of a run; `policies` is empty where there are mistakes."""

    mistakes: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    policies: tuple[PolicySummary, ...]


def lint_report(run: LintRun) -> LintReport:
    return LintReport(
        mistakes=tuple(_mistake(found) for found in run.mistakes),
        warnings=tuple(_warning(found) for found in run.warnings),
        policies=tuple(_summary(policy) for policy in run.policies),
    )


def _mistake(found: Diagnostic) -> Finding:
    return Finding(
        file=found.file,
        line=found.line,
        column=found.column,
        check="mistake",
        message=found.message,
        hint=found.hint,
    )


def _warning(found: PolicyWarning) -> Finding:
    return Finding(
        file=found.place.file,
        line=found.place.line,
        column=found.place.column,
        check=found.check.value,
        message=found.message,
        hint=found.hint,
        policy=found.policy,
        rule=found.part,
    )


def _summary(policy: CompiledPolicy) -> PolicySummary:
    rules = (
        RuleSummary(
            name=rule.name,
            kind="score" if isinstance(rule, ScoreRule) else "filter",
            weight=rule.weight if isinstance(rule, ScoreRule) else 0,
            enforced_by=enforced_by(policy, rule),
            cost_millis=cost_millis(rule),
        )
        for rule in policy.rules
    )
    return PolicySummary(
        name=policy.name,
        file="" if policy.places is None else policy.places.document.file,
        mode=policy.mode.value,
        priority=policy.priority,
        rules=tuple(rules),
    )


# What lint finds as SARIF 2.1.0, which code hosts show beside the lines of a change.
#
# https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html


_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_MISTAKE: Final = "mistake"
_ROOT: Final = "%SRCROOT%"  # by convention, the root of the checkout

_Json = dict[str, Any]


def sarif_log(run: LintRun, *, root: Path) -> _Json:
    mistakes = (_result(_MISTAKE, "error", found, root) for found in run.mistakes)
    warnings = (
        _result(found.check.value, "warning", found.diagnostic, root) for found in run.warnings
    )
    driver = {
        "name": "stowplan",
        "version": VERSION,
        "rules": [
            _rule(_MISTAKE, "error", "A mistake: the policy cannot be loaded."),
            *(_rule(check.value, "warning", text) for check, text in CHECKS.items()),
        ],
    }
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [*mistakes, *warnings],
            }
        ],
    }


def _rule(name: str, level: str, text: str) -> _Json:
    return {
        "id": name,
        "shortDescription": {"text": text},
        "defaultConfiguration": {"level": level},
    }


def _result(rule: str, level: str, found: Diagnostic, root: Path) -> _Json:
    location: _Json = {"artifactLocation": _artifact(found.file, root)}
    if found.line:
        location["region"] = {"startLine": found.line, "startColumn": found.column}
        if found.source:
            location["region"]["snippet"] = {"text": found.source}
    text = f"{found.message}\nhint: {found.hint}" if found.hint else found.message
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }


def _artifact(file: str, root: Path) -> _Json:
    path = Path(file).absolute()
    if path.is_relative_to(root):
        return {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": _ROOT}
    return {"uri": path.as_uri()}


def lint(
    paths: Annotated[
        list[Path],
        Parameter(
            allow_leading_hyphen=True,
            help="Files, folders, or names of policies to start from; `-` is standard input.",
        ),
    ],
    /,
    *,
    verbose: Verbose = False,
    json: Json = False,
    sarif: Annotated[Path | None, described("Write what was found to this file, as SARIF.")] = None,
    cluster: Annotated[
        list[Path] | None,
        described("Recording: also warn of labels, taints and the like that nothing there has."),
    ] = None,
    watch: Watch = False,
) -> int:
    """Check policy files, and show how their rules take effect.

    Every mistake is shown with its place and a hint. Plugins and their args are listed in
    `docs/plugins.md`.
    """
    _refuse_options(paths)

    def run() -> int:
        return _lint(paths, verbose=verbose, as_json=json, sarif=sarif, cluster=cluster or ())

    if watch and STANDARD_INPUT in paths:
        raise StowplanError("`--watch` needs files: standard input does not change")
    if watch:
        run_on_changes(paths, run, written=sarif)
    return run()


def _lint(
    paths: list[Path],
    *,
    verbose: bool,
    as_json: bool,
    sarif: Path | None,
    cluster: Sequence[Path],
) -> int:
    run = _checked(paths, cluster)
    if sarif is not None:
        sarif.write_bytes(msgspec.json.format(msgspec.json.encode(sarif_log(run, root=Path.cwd()))))
    if as_json:
        show_json(lint_report(run))
        return Exit.INVALID if run.mistakes else Exit.OK
    if run.mistakes:
        raise InvalidFileError(run.mistakes)
    show(_blocks(run, verbose=verbose))
    return Exit.OK


def _checked(paths: list[Path], cluster: Sequence[Path]) -> LintRun:
    try:
        policies = load_policy_set(paths)
    except InvalidFileError as error:
        return LintRun.failed(error)
    if not cluster:
        return LintRun.of(policies)
    from webhook.cli.cluster_loading import known_cluster  # noqa: PLC0415 - few need a simulation

    return LintRun.of(policies, known_cluster(cluster, policies))


def _refuse_options(paths: list[Path]) -> None:
    """Refuse an option that is unknown: `-` is the only path that begins so."""
    for path in paths:
        if str(path).startswith("-") and path != STANDARD_INPUT:
            raise StowplanError(f"unknown option: `{path}`\nhint: see `stowplan lint --help`")


def _blocks(run: LintRun, *, verbose: bool) -> Iterator[ui.Block]:
    yield _rules_table(run.policies)
    for warning in run.warnings:
        found = warning.diagnostic
        text = str(replace(found, message=f"warning: {found.message}"))
        yield ui.Paragraph(text, "command")
    if verbose:
        for policy in run.policies:
            for rule in policy.rules:
                yield from _plan_blocks(policy, rule)
    count = counted(len(run.policies), "policy", "policies")
    yield ui.Paragraph(f"{count}, no mistakes", "heading")
