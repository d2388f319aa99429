"""`stowplan import`: policies that rank nodes as a configuration of kube-scheduler does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter
from rich.markup import escape

from engine.errors import Diagnostic, StowplanError, counted
from engine.policy import PolicySet, content_of, load_policies
from engine.policy_lint import policy_warnings
from engine.scheduler_config import imported_policies
from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.options import described
from webhook.cli.policy_loading import MOST_READ, STANDARD_INPUT

_STANDARD_OUTPUT: Final = "<stdout>"


def import_configuration(
    file: Annotated[
        Path,
        Parameter(
            allow_leading_hyphen=True,
            help="KubeSchedulerConfiguration, or a ConfigMap with one; `-` is standard input.",
        ),
    ],
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(name=("--output", "-o"), help="File to write; else standard output."),
    ] = None,
    name: Annotated[str, described("Name of the policy; else that of the profile.")] = "",
    force: Annotated[bool, described("Replace the file.")] = False,
) -> int:
    """Write policies that rank nodes as a configuration of kube-scheduler does."""
    if output is not None and output.exists() and not force:
        raise StowplanError(f"`{output}` exists\nhint: `--force` replaces it")
    is_piped = file == STANDARD_INPUT
    content = sys.stdin.buffer.read(MOST_READ) if is_piped else content_of(file)
    made = imported_policies(content, "<stdin>" if is_piped else str(file), name=name)
    text = made.text
    # As any other policies are: a mistake here is one of a name, or ours.
    place = _STANDARD_OUTPUT if output is None else str(output)
    policies = load_policies((), {place: text.encode()})
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
    _show(policies, made.problems, place)
    return Exit.INVALID if made.problems else Exit.OK


def _show(policies: PolicySet, left_out: Sequence[Diagnostic], place: str) -> None:
    """Print what is left out and what lint finds; not among the policies."""
    notes = console.errors()
    for problem in left_out:
        notes.print(f"left out: {problem}", markup=False, soft_wrap=True)
    for policy in policies:
        for warning in map(str, policy_warnings(policy)):
            notes.print(f"[yellow]warning:[/] {escape(policy.name)}: {escape(warning)}")
    written = counted(len(policies.policies), "policy", "policies")
    notes.print(f"{place}: {written}, no mistakes", markup=False, soft_wrap=True)
