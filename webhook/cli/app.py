"""The commands, and how an error becomes a message and an exit status."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from cyclopts import App, CoercionError, CycloptsError, Parameter, UnusedCliTokensError

from engine.errors import InvalidFileError, StowplanError
from webhook.cli.console import errors
from webhook.cli.exit_codes import EXIT_CODES, Exit

_WANTED = {int: "a whole number", datetime: "a moment, as `2026-03-02T10:00:00Z`"}


def _shown_default(value: object) -> str | None:
    """Return what `--help` says of a default; nothing of one that means nothing."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or None
    return None if value in (None, False) else str(value)


app = App(
    name="stowplan",
    version=lambda: importlib.metadata.version("stowplan"),
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    help=f"""Placement policies and ElasticQuota for any Kubernetes cluster, beside its scheduler.

    Start with `stowplan demo`: it needs no cluster and ends by itself.

    {EXIT_CODES}
    """,
)

# By name, so that `lint` need not wait for the import of a web server.
app.command(
    "webhook.cli.demo:demo",
    name="demo",
    help="""Send pods to a real server on a small recorded cluster, and show what it answers.

    The server listens on a free port of this machine, with a certificate made for the occasion.
    """,
)
app.command(
    "webhook.cli.doctor:doctor",
    name="doctor",
    help="""Check a live installation, and say what to do about what is found.

    Nothing is changed: the cluster is read, replicas are asked for their state by the API server,
    and a pod is created as a dry run. Exit status: 0 all well, 1 could not run, 2 findings.
    """,
)
app.command(
    "webhook.cli.explain:explain",
    name="explain",
    help="""Show what would be decided for a pod, and why, node by node.

    Nothing is sent anywhere: the decision is made here, as a webhook with these policies and its
    default settings makes it.
    """,
)
app.command(
    "webhook.cli.policy_tests:run_policy_tests",
    name="test",
    help="""Run the cases of policies: `cases.yaml` beside each policy, in a folder and below.

    A case is a small cluster, a pod, and what must come of it.
    """,
)
app.command(
    "webhook.cli.lint:lint",
    name="lint",
    help="""Check policy files, and show what their rules come to.

    What a filter says of node labels is required of every node, also of those to come. All else is
    advice: which nodes to prefer, true for the moment it is given.
    """,
)
app.command(
    "webhook.cli.serve:app",
    name="serve",
    help="""Answer admission reviews over TLS until told to end by SIGINT or SIGTERM.

    Each setting is taken from its flag, else from its environment variable, else from the file
    named by `--config`, else from its default.
    """,
)
app.command(
    "webhook.cli.snapshot:snapshot",
    name="snapshot",
    help="""Record a live cluster in a file, for `--cluster` of the other commands.

    The API server is only read from. The file holds what rules can read of nodes, pods, namespaces,
    ElasticQuotas and of measured usage; environment variables and the like are not among it.
    """,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line, by default with the arguments of the process.

    Raises:
        SystemExit: always; with an `Exit` status.
    """
    try:
        status = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        _fail(_usage(error), Exit.FAILED)
    except InvalidFileError as error:
        _fail(str(error), Exit.INVALID)
    except StowplanError as error:
        _fail(str(error), Exit.FAILED)
    except OSError as error:  # a full disk, say, or no more files to open
        _fail((error.strerror or str(error)).lower(), Exit.FAILED)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    sys.exit(status)


def _usage(error: CycloptsError) -> str:
    """Return what is wrong with the arguments, in the words of our other errors."""
    hint = f"see `{' '.join(('stowplan', *(error.command_chain or ())))} --help`"
    message = str(error).replace('"', "`").removesuffix(".")
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        message = f"unexpected argument `{error.unused_tokens[0]}`"
        hint = f"repeat a flag for each of its values; {hint}"
    elif isinstance(error, CoercionError) and error.token and error.target_type in _WANTED:
        wanted = _WANTED[error.target_type]
        message = f"{error.token.keyword}: expected {wanted}, not `{error.token.value}`"
    return f"{message[:1].lower()}{message[1:]}\nhint: {hint}"


def _fail(message: str, status: Exit) -> NoReturn:
    errors().print(message, markup=False, soft_wrap=True)
    sys.exit(status)
