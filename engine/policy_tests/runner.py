"""The runner of policy tests: every case decides as the webhook would, compared with `expect`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.errors import Diagnostic, InvalidFileError
from engine.model.decision import Decision
from engine.pipeline import Scope, decide
from engine.policy import Mode, PolicySet, load_policies
from engine.policy.loader import CASES_FILE
from engine.policy_tests.cases import Case, read_cases
from engine.policy_tests.comparison import causes, failures

_EVERY_POD = Scope(excluded_namespaces=())


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
    decision = decide(case.request, policies, case.state.view(), case.now, scope=_EVERY_POD)
    unmet = tuple(failures(case.expect, decision))
    return CaseResult(
        file=case.file,
        name=case.name,
        decision=decision,
        failures=unmet,
        causes=tuple(causes(case.expect, decision)) if unmet else (),
    )
