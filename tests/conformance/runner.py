"""Reading files of conformance cases, in any of their three shapes, and running the cases.

A file holds an array of groups `{source, plugin, stage, cases}`, or one such group whose cases may
name a plugin or stage of their own, or a bare array of CEL cases.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from tests.conformance.expected_failures import EXPECTED_FAILURES
from tests.conformance.outcome import UnsupportedError
from tests.conformance.stages import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conformance.outcome import Json, Stage

_BARE_CASES: Json = {"plugin": "CEL", "stage": "evaluate"}
"""The group of cases that stand alone in an array."""

Verdict: TypeAlias = Literal["passed", "failed", "expected failure", "unsupported"]


@dataclass(frozen=True, slots=True)
class Case:
    """One case as it stands in a file.

    Attributes:
        file: the name of its file without `.json`.
        body: the case itself.
        group: what its cases share; never what one case overrides.
    """

    file: str
    body: Json
    group: Json

    @property
    def label(self) -> str:
        """Its id, or the name that stands in for one."""
        return str(self.body.get("id") or self.body.get("name") or "(unnamed)")

    @property
    def plugin(self) -> str:
        """Whose behaviour it pins."""
        return str(self.body.get("plugin") or self.group.get("plugin", ""))

    @property
    def stage(self) -> str:
        """Which part of that behaviour."""
        return str(self.body.get("stage") or self.group.get("stage", ""))

    @property
    def key(self) -> tuple[str, str]:
        """How the list of expected failures names it."""
        return self.file, self.label


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case; `text` says what went wrong and is empty when nothing did."""

    verdict: Verdict
    text: str = ""


def read_cases(path: Path) -> Iterator[Case]:
    """Yield the cases of a file in order."""
    content = json.loads(path.read_bytes())
    for group in content if isinstance(content, list) else [content]:
        if "cases" in group:
            shared = {key: value for key, value in group.items() if key != "cases"}
            for body in group["cases"]:
                yield Case(path.stem, body, shared)
        else:
            yield Case(path.stem, group, _BARE_CASES)


def mismatch_of(case: Case, plugins: Mapping[str, Mapping[str, Stage]] = PLUGINS) -> str | None:
    """Return what is wrong with the outcome of a case, as one line, or None.

    Raises:
        UnsupportedError: it is about something that the program does not do.
    """
    run = plugins.get(case.plugin, {}).get(case.stage)
    if run is None:
        return f"no runner for {case.plugin}/{case.stage}"
    try:
        wrong = run(case.body, case.group)
    except UnsupportedError:
        raise
    except Exception as error:  # noqa: BLE001 (a broken stage fails its case, not the run)
        wrong = f"raised {type(error).__name__}: {error}"
    return None if wrong is None else " ".join(wrong.split())


def outcome_of(
    case: Case,
    *,
    plugins: Mapping[str, Mapping[str, Stage]] = PLUGINS,
    expected_failures: Mapping[tuple[str, str], str] = EXPECTED_FAILURES,
) -> Outcome:
    """Run a case and judge it; one that is listed as failing must fail."""
    try:
        wrong = mismatch_of(case, plugins)
    except UnsupportedError as error:
        return Outcome("unsupported", str(error))
    reason = expected_failures.get(case.key)
    if reason is None:
        return Outcome("passed") if wrong is None else Outcome("failed", wrong)
    if wrong is None:
        return Outcome("failed", f"passes, yet is listed as an expected failure: {reason}")
    return Outcome("expected failure", f"{wrong} ({reason})")
