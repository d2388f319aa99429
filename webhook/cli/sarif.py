"""What lint finds as SARIF 2.1.0, which code hosts show beside the lines of a change.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from engine.errors import Diagnostic
from engine.policy_lint import CHECKS
from webhook.cli.lint_report import LintRun
from webhook.version import VERSION

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_MISTAKE: Final = "mistake"
_ROOT: Final = "%SRCROOT%"  # by convention, the root of the checkout

_Json = dict[str, Any]


def sarif_log(run: LintRun, *, root: Path) -> _Json:
    """Return a run as a SARIF log.

    Args:
        run: what lint found.
        root: the folder that files are named from, where they are below it.
    """
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
