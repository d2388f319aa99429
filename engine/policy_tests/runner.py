"""The runner of policy tests: every case decides as the webhook would, compared with `expect`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.errors import Diagnostic, InvalidFileError, counted
from engine.model.decision import Decision
from engine.pipeline import decide
from engine.policy import Mode, PolicySet, load_policies
from engine.policy.loader import CASES_FILE
from engine.policy_tests.cases import Case, Expectation, read_cases

_MOST_NAMED = 8  # of candidates in a line


def failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    """Yield a line for each expectation that a decision does not meet."""
    if expect.verdict is not None and decision.verdict is not expect.verdict:
        yield f"verdict: expected {expect.verdict}, got {decision.verdict} ({decision.message})"
    if expect.message is not None and expect.message not in decision.message:
        yield f"message: expected `{expect.message}` in `{decision.message}`"
    yield from _ranking_failures(expect, decision)
    yield from _rejection_failures(expect, decision)
    yield from _score_failures(expect, decision)
    for text in expect.errors:
        if not any(text in error for error in decision.errors):
            got = "; ".join(decision.errors) or "no error"
            yield f"errors: expected `{text}`, got {got}"


def causes(expect: Expectation, decision: Decision) -> Iterator[str]:
    """Yield what may explain that a decision does not meet an expectation, a line each.

    That is what could not be evaluated, why an expected node is not a candidate, and why a score
    does not count.
    """
    yield from decision.errors
    scored = (node for points in expect.scores.values() for node in points)
    candidates = _names(decision)
    for node in dict.fromkeys((*expect.best, *expect.order, *scored)):
        if node not in candidates:
            yield f"{node} is not a candidate: {_absence(node, decision)}"
    for score in decision.scores:
        if score.reason and not score.faults:
            yield f"{score.rule} has no effect: {score.reason}"


def _ranking_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    totals = dict(zip(_names(decision), decision.totals.tolist(), strict=True))
    best = {name for name, total in totals.items() if total == max(totals.values())}
    if expect.best and best != set(expect.best):
        yield f"best: expected {', '.join(expect.best)}, got {_ranking(totals)}"
    ranked = [totals.get(name, -1) for name in expect.order]
    if -1 in ranked or ranked != sorted(set(ranked), reverse=True):
        yield f"order: expected {', '.join(expect.order)}, got {_ranking(totals)}"


def _ranking(totals: dict[str, int]) -> str:
    """Return candidates with their points; those that share the most together."""
    if not totals:
        return "no candidate"
    most = max(totals.values())
    best = [name for name, total in totals.items() if total == most]
    others = [f"{name} {total}" for name, total in totals.items() if total != most]
    each = " each" if len(best) > 1 else ""
    first = f"{' and '.join(_some(best))} with {counted(most, 'point')}{each}"
    return ", ".join([first, *_some(others)])


def _some(names: list[str]) -> list[str]:
    more = len(names) - _MOST_NAMED
    return [*names[:_MOST_NAMED], f"{more} more"] if more > 0 else names


def _rejection_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    for node, text in expect.rejected.items():
        reasons = _rejections(node, decision)
        if not any(text in reason for reason in reasons):
            got = "; ".join(reasons) or (
                "no rejection" if node in decision.names else "no such node"
            )
            yield f"rejected: expected `{text}` for {node}, got {got}"


def _rejections(node: str, decision: Decision) -> list[str]:
    """Return why a node was rejected, by each filter that did."""
    if node not in decision.names:
        return []
    row = decision.names.index(node)
    return [
        f"{outcome.rule}: {outcome.reason(row)}"
        for outcome in decision.filters
        if outcome.rejects[row]
    ]


def _absence(node: str, decision: Decision) -> str:
    """Return why a node is not a candidate."""
    if node not in decision.names:
        return "the cluster has no such node"
    return "; ".join(_rejections(node, decision)) or decision.message


def _score_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    scores = {score.rule: score for score in decision.scores}
    names = _names(decision)
    for rule, wanted in expect.scores.items():
        if rule not in scores:
            known = ", ".join(scores) or "none"
            yield f"scores: there is no score {rule} (those that apply: {known})"
            continue
        got = dict(zip(names, scores[rule].normalized.tolist(), strict=True))
        for node, points in wanted.items():
            if got.get(node) != points:
                expected = counted(points, "point")
                what = counted(got[node], "point") if node in got else "none: it is not a candidate"
                yield f"scores: expected {rule} to give {node} {expected}, got {what}"


def _names(decision: Decision) -> list[str]:
    """Return the candidates, best first."""
    return [decision.names[row] for row in decision.candidates.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of a case.

    Attributes:
        file: the file of the case.
        name: its name.
        decision: the decision.
        failures: a line for each expectation that was not met; none when it passed.
        causes: what may explain them, a line each.
    """

    file: str
    name: str
    decision: Decision
    failures: tuple[str, ...]
    causes: tuple[str, ...] = ()


@dataclass(slots=True)
class CaseRun:
    """The results of all cases.

    Attributes:
        results: of those that could be run, in their order.
        problems: the mistakes in policies, and in the cases that could not be run.
        untested: the names of policies that no case applies.
    """

    results: list[CaseResult] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    untested: tuple[str, ...] = ()


def run_cases(path: Path, *, examine: Callable[[Case, PolicySet], None] | None = None) -> CaseRun:
    """Run the cases of a file, or of every `cases.yaml` in a folder and below it.

    Cases are run against the policies in their folder and below; a policy in Audit mode is tested
    as if it were in Enforce mode. What is wrong in one file does not stop the others.

    Args:
        path: the file or folder.
        examine: called with each case that can be run and the policies it is run against.

    Raises:
        InvalidFileError: there are no cases.
    """
    files = sorted(path.rglob(CASES_FILE)) if path.is_dir() else [path]
    if not files:
        raise InvalidFileError([Diagnostic(file=str(path), message=f"holds no `{CASES_FILE}`")])
    run, names = CaseRun(), set[str]()
    for file in files:
        names |= _run_file(file, run, examine)
    if path.is_dir():  # policies of different folders need not go together
        names |= {policy.name for policy in _loaded([path], CaseRun())}
    run.problems = list(dict.fromkeys(run.problems))
    applied = {name for result in run.results for name in result.decision.policies}
    # Cases that could not be run may apply any policy.
    run.untested = () if run.problems else tuple(sorted(names - applied))
    return run


def _run_file(
    file: Path, run: CaseRun, examine: Callable[[Case, PolicySet], None] | None
) -> set[str]:
    """Add the results of a file of cases to a run; return the names of the policies beside it."""
    policies = _loaded([file.parent], run)
    now_is_read = any(
        path[0] == "now"
        for policy in policies
        for program in policy.programs
        for path in program.references
    )
    try:
        cases, problems = read_cases(file, now_is_read=now_is_read)
    except InvalidFileError as error:
        cases, problems = (), list(error.problems)
    run.problems += problems
    if policies:
        enforced = PolicySet(replace(policy, mode=Mode.ENFORCE) for policy in policies)
        run.results += (_result(case, enforced) for case in cases)
        if examine is not None:
            for case in cases:
                examine(case, policies)
    return {policy.name for policy in policies}


def _loaded(paths: Iterable[Path], run: CaseRun) -> PolicySet:
    """Return policies; none, with a note of the mistakes, if there are any."""
    try:
        return load_policies(paths)
    except InvalidFileError as error:
        run.problems += error.problems
        return PolicySet()


def _result(case: Case, policies: PolicySet) -> CaseResult:
    case.state.track_sums(policies.sum_profiles)
    decision = decide(case.request, policies, case.state.view(), case.now)
    unmet = tuple(failures(case.expect, decision))
    return CaseResult(
        file=case.file,
        name=case.name,
        decision=decision,
        failures=unmet,
        causes=tuple(causes(case.expect, decision)) if unmet else (),
    )
