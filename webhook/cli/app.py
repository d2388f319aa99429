"""The commands, and how an error becomes a message and an exit status."""

from __future__ import annotations

import sys

from cyclopts import App, Parameter
from rich.console import Console

from engine.errors import InvalidFileError, StowplanError
from webhook.cli.demo import demo
from webhook.cli.exit_codes import EXIT_CODES, Exit
from webhook.cli.explain import explain
from webhook.cli.lint import lint
from webhook.cli.policy_tests import run_policy_tests
from webhook.cli.serve import serve
from webhook.settings import ShownEnvironment

_HELP = f"""Placement policies and ElasticQuota for any Kubernetes cluster, beside its scheduler.

Start with `stowplan demo`: it needs no cluster and ends by itself.
{EXIT_CODES}
"""

app = App(name="stowplan", help=_HELP, default_parameter=Parameter(negative=()))
app.command(demo)
app.command(explain)
app.command(run_policy_tests, name="test")
app.command(lint)
app.command(serve, config=ShownEnvironment())


def main() -> None:
    """Run the command line; ends the process with an `Exit` status."""
    try:
        sys.exit(app())
    except StowplanError as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(Exit.INVALID if isinstance(error, InvalidFileError) else Exit.FAILED)
