"""The runner of policy tests: every case decides as the webhook would, compared with `expect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import Diagnostic, InvalidFileError
from engine.model.decision import Decision
from engine.pipeline import Scope, decide
from engine.policy import Mode, PolicySet, load_policies
from engine.policy.loader import CASES_FILE
from engine.policy_tests.cases import Case, Expectation, read_cases

_EVERY_POD = Scope(excluded_namespaces=())


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of a case.

    Attributes:
        file: the file of the case.
        name: its name.
        decision: the decision.
        failures: a line for each expectation that was not met; none when it passed.
    """

    file: str
    name: str
    decision: Decision
    failures: tuple[str, ...]


def run_cases(path: Path) -> tuple[CaseResult, ...]:
    """Run the cases of a file, or of every `cases.yaml` in a folder and below it.

    Cases are run against the policies in their folder and below; a policy in Audit mode is tested
    as if it were in Enforce mode.

    Raises:
        InvalidFileError: there are no cases, or mistakes in them or in a policy; carries every
            mistake of every file.
    """
    files = sorted(path.rglob(CASES_FILE)) if path.is_dir() else [path]
    if not files:
        raise InvalidFileError([Diagnostic(file=str(path), message=f"holds no `{CASES_FILE}`")])
    loaded: list[tuple[PolicySet, tuple[Case, ...]]] = []
    problems: list[Diagnostic] = []
    for file in files:
        try:
            policies = load_policies([file.parent])
        except InvalidFileError as error:
            policies = PolicySet()
            problems += error.problems
        try:
            loaded.append((_enforced(policies), read_cases(file)))
        except InvalidFileError as error:
            problems += error.problems
    if problems:
        raise InvalidFileError(problems)
    return tuple(_run(case, policies) for policies, cases in loaded for case in cases)


def _enforced(policies: PolicySet) -> PolicySet:
    return PolicySet(replace(policy, mode=Mode.ENFORCE) for policy in policies)


def _run(case: Case, policies: PolicySet) -> CaseResult:
    case.state.track_sums(policies.sum_profiles)
    decision = decide(case.request, policies, case.state.view(), case.now, scope=_EVERY_POD)
    return CaseResult(
        file=case.file,
        name=case.name,
        decision=decision,
        failures=tuple(_failures(case.expect, decision)),
    )


def _failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    if expect.verdict is not None and decision.verdict is not expect.verdict:
        yield f"verdict: expected {expect.verdict}, got {decision.verdict} ({decision.message})"
    if expect.message is not None and expect.message not in decision.message:
        yield f"message: expected `{expect.message}` in `{decision.message}`"
    yield from _ranking_failures(expect, decision)
    yield from _rejection_failures(expect, decision)
    yield from _score_failures(expect, decision)
    for text in expect.errors:
        if not any(text in error for error in decision.errors):
            yield f"errors: expected `{text}` in {list(decision.errors)}"


def _ranking_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    totals = dict(zip(_names(decision), decision.totals.tolist(), strict=True))
    totals_text = ", ".join(f"{name} {total}" for name, total in totals.items()) or "none"
    best = {name for name, total in totals.items() if total == max(totals.values())}
    if expect.best and best != set(expect.best):
        yield f"best: expected {', '.join(expect.best)}, got {totals_text}"
    ranked = [totals.get(name, -1) for name in expect.order]
    if -1 in ranked or ranked != sorted(set(ranked), reverse=True):
        yield f"order: expected {', '.join(expect.order)}, got {totals_text}"


def _rejection_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    for node, text in expect.rejected.items():
        row = decision.names.index(node) if node in decision.names else None
        reasons = (
            []
            if row is None
            else [
                f"{outcome.rule}: {outcome.reason(row)}"
                for outcome in decision.filters
                if outcome.rejects[row]
            ]
        )
        if not any(text in reason for reason in reasons):
            got = "; ".join(reasons) or ("nothing" if row is not None else "no such node")
            yield f"rejected: expected `{text}` for {node}, got {got}"


def _score_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    scores = {score.rule: score for score in decision.scores}
    for rule, wanted in expect.scores.items():
        points = scores[rule].normalized.tolist() if rule in scores else []
        got = dict(zip(_names(decision), points, strict=False))
        for node, expected in wanted.items():
            if got.get(node) != expected:
                yield f"scores: expected {rule} to give {node} {expected}, got {got.get(node)}"


def _names(decision: Decision) -> list[str]:
    """Return the candidates, best first."""
    return [decision.names[row] for row in decision.candidates.tolist()]
