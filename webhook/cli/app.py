"""The table of commands, and the translation of errors to messages and exit statuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from datetime import datetime
from io import StringIO
from typing import Annotated, Final, Literal

from cyclopts import (
    App,
    Argument,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnusedCliTokensError,
)

from engine.errors import InvalidFileError, StowplanError
from webhook.cli.exit_codes import EXIT_CODES, Exit
from webhook.cli.options import described
from webhook.identity import VERSION

_EXPECTED = {int: "a whole number", datetime: "a moment, as `2026-03-02T10:00:00Z`"}


def _shown_default(value: object) -> str | None:
    """Return a default as `--help` shows it; None for an empty one."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or None
    return None if value in (None, False, "") else str(value)


def _print_version() -> None:
    sys.stdout.write(f"{VERSION}\n")


app = App(
    name="stowplan",
    version_flags=(),  # its own would load the parts that show help
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    help=f"""Placement policies and ElasticQuota for any Kubernetes cluster, next to its scheduler.

    Start with `stowplan demo`: it needs no cluster and exits on its own.

    {EXIT_CODES}
    """,
)

app.command(_print_version, name="--version", help="Show the version.")
# By name: `lint` does not have to import a web server.
app.command(
    "webhook.cli.app:completion",
    name="completion",
    help="""Print the completion script of a shell: `bash`, `zsh` or `fish`.

    For this shell alone: `source <(stowplan completion bash)`. For all to come, write it to
    `~/.local/share/bash-completion/completions/stowplan`, to `_stowplan` in a folder of zsh's
    `fpath`, or to `~/.config/fish/completions/stowplan.fish`. `kubectl stowplan` completes by
    itself.
    """,
)
app.command(
    "webhook.cli.serve:control_app",
    name="control",
    help="""Do what is done once for all replicas of `stowplan serve`, until SIGINT or SIGTERM.

    Several may run: one of them leads, by a Lease, and the others take over when it ends. The
    leader decides bindings, releases held pods, evicts pods for others, counts where pods are
    bound, writes the status of quotas, PodGroups and policies, and renews the certificate. It
    answers no review of a pod that is created.

    Settings are those of `stowplan serve`, to be given alike, and are taken from flags, environment
    variables and the file named by `--config` in that order.
    """,
)
app.command(
    "webhook.cli.dashboard:dashboard",
    name="dashboard",
    help="""Show nodes, quotas, held pods and decisions of a cluster in a browser, until Ctrl-C.

    The pages are served on this machine alone, to whoever has the URL that is printed. A live
    cluster is only read from, with the rights of the kubeconfig; nothing is installed in it.
    """,
)
app.command(
    "webhook.cli.demo:demo",
    name="demo",
    help="""Send pods to a real server on a small recorded cluster, and show its answers.

    The server listens on a free port of this machine, with a certificate of its own.
    """,
)
app.command(
    "webhook.cli.doctor:doctor",
    name="doctor",
    help="""Check a live installation, and advise on every finding.

    Nothing is changed: the cluster is read, also the state of replicas through the API server, and
    a pod is created as a dry run. Exit status: 0 all well, 1 could not run, 2 findings.
    """,
)
app.command(
    "webhook.cli.eval:evaluate",
    name="eval",
    help="""Show the value of an expression for each node of a recorded cluster.

    It is read as one of a filter or a score: mistakes are shown with their place and a hint, and
    values by node with how all nodes are evaluated at once.
    """,
)
app.command(
    "webhook.cli.explain:explain",
    name="explain",
    help="""Show the decision for a pod with its reasons, node by node.

    POD is a manifest of a pod or workload, or a name as kubectl takes it: pod/web-0, deploy/web.

    Nothing is sent anywhere: the decision is made here, the same as by a webhook with these
    policies and its default settings.
    """,
)
app.command(
    "webhook.cli.import_:import_configuration",
    name="import",
    help="""Write policies that rank nodes as a configuration of kube-scheduler does.

    It takes a KubeSchedulerConfiguration with the args of Koordinator and scheduler-plugins, one of
    its profiles, or entries of `pluginConfig`. Comments say what a policy cannot.
    """,
)
app.command(
    "webhook.cli.init:init",
    name="init",
    help="""Write a policy to start from in a folder, with cases that pass.

    Editors complete and check it by the schema that is written, too. Nothing is overwritten.
    """,
)
app.command(
    "webhook.cli.policy_tests:run_policy_tests",
    name="test",
    help="""Run the cases of policies: `cases.yaml` beside each policy, in a folder and below.

    A case is a small cluster, a pod, and the expected decision.
    """,
)
app.command(
    "webhook.cli.lint:lint",
    name="lint",
    help="""Check policy files, and show how their rules take effect.

    Filters over node labels become requirements on every node, also on nodes to come. All other
    rules become advice on the nodes to prefer, valid at the moment of the decision.
    """,
)
app.command(
    "webhook.cli.outcome:outcome",
    name="outcome",
    help="""Show where the pods of policies were bound, against what the stock scheduler would take.

    It reads the figures that the leader stores once a minute, so it works when no replica does.
    Exit status: 0 all well, 1 could not run, 2 a policy makes things worse, or did.
    """,
)
app.command(
    "webhook.cli.queue:queue",
    name="queue",
    help="""Show the held pods of a live cluster in the order in which they are released.

    It reads the cluster alone, so it works when no replica does. Exit status: 0 all in time, 1
    could not run, 2 pods are overdue or nobody releases them.
    """,
)
app.command(
    "webhook.cli.release:release",
    name="release",
    help="""Release held pods: remove our scheduling gate from them, and nothing else.

    It needs the right to list and to patch pods, and nothing of ours has to run. Exit status: 0 no
    such pod is held any more, or a leader releases the overdue ones, 1 could not run, 2 some are.
    """,
)
app.command(
    "webhook.cli.serve:serve_app",
    name="serve",
    help="""Answer admission reviews over TLS until SIGINT or SIGTERM.

    What is done once for all replicas, `stowplan control` does, or one of them with `--control`.

    Each setting is taken from its flag, else from its environment variable, else from the file
    named by `--config`, else from its default.
    """,
)
app.command(
    "webhook.cli.simulate:simulate_command",
    name="simulate",
    help="""Show what policies would do to a recorded cluster, beside what the scheduler does.

    Pods arrive one by one on a copy of the cluster, once for each arm: under a model of the
    scheduler alone, and under policies. With `--add-nodes`, `--drain` or `--scale` it answers
    what-ifs: who goes where, what is refused, who would be evicted. With `--repack` it plans which
    running pods would have to move so that waiting ones fit, and so that `--free-nodes` nodes are
    free. Nothing is sent anywhere.
    """,
)
app.command(
    "webhook.cli.snapshot:snapshot",
    name="snapshot",
    help="""Record a live cluster in a file, for `--cluster` of the other commands.

    The API server is only read from. The file holds the fields that rules can read of nodes, pods,
    namespaces, ElasticQuotas and measured usage: no environment variables or the like.
    """,
)


def run(
    arguments: Sequence[str] | None = None,
    *,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int | None:
    """Run a command, and return its exit status."""
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        with during():
            status: int | None = command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        return _failed(_usage(error, arguments), Exit.FAILED)
    except InvalidFileError as error:
        return _failed(str(error), Exit.INVALID)
    except StowplanError as error:
        return _failed(str(error), Exit.FAILED)
    except OSError as error:  # such as a full disk, or no more files to open
        reason = (error.strerror or str(error)).lower()
        return _failed(f"{error.filename}: {reason}" if error.filename else reason, Exit.FAILED)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return status


def _usage(error: CycloptsError, arguments: Sequence[str] | None) -> str:
    """Return the mistake in the arguments, in the style of our other errors."""
    hint = f"see `{' '.join(('stowplan', *(error.command_chain or ())))} --help`"
    message = str(error).replace('"', "`").removesuffix(".")
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        message = _missing(error, error.argument)
        swallows = "--cluster" in (arguments or sys.argv)
        if message.startswith("argument") and swallows:
            hint = f"it comes before the options: `--cluster` takes all that follows it; {hint}"
    elif isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        message = f"unexpected argument `{error.unused_tokens[0]}`"
        hint = f"repeat a flag for each of its values; {hint}"
    elif isinstance(error, CoercionError) and error.token and error.target_type in _EXPECTED:
        expected = _EXPECTED[error.target_type]
        message = f"{error.token.keyword}: expected {expected}, not `{error.token.value}`"
    return f"{message[:1].lower()}{message[1:]}\nhint: {hint}"


def _missing(error: MissingArgumentError, argument: Argument) -> str:
    """Return which argument is missing, or came without a value."""
    given = error.keyword or next((token.keyword for token in argument.tokens if token.keyword), "")
    if given:
        return f"{given} needs a value"
    kind = "option" if argument.name.startswith("-") else "argument"
    return f"{kind} `{argument.name}` is missing"


def _failed(message: str, status: Exit) -> Exit:
    from webhook.cli.console import errors  # noqa: PLC0415 - it takes as long as the version does

    errors().print(message, markup=False, soft_wrap=True)
    return status


_WORDS: Final = "CYCLOPTS_COMPLETION_WORDS"
_SEPARATOR: Final = "\x1f"  # ends each word, and begins each line that is no candidate
_FILES: Final = f"{_SEPARATOR}files"
_PREFIX: Final = f"{_SEPARATOR}prefix\t"
_WITH_FILES, _WITHOUT_FILES = 0, 4  # ShellCompDirective of https://github.com/spf13/cobra


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], described("The shell.")], /) -> int:
    """Print the completion script of a shell."""
    sys.stdout.write(app.generate_completion(shell=shell))
    return Exit.OK


def complete_for_kubectl() -> None:
    """Print the candidates for the last argument of the process, as kubectl asks plugins to.

    It runs `kubectl_complete-stowplan` with the words after `kubectl stowplan`. A line is a
    candidate and a description with a tab between, the last one says whether files will do.
    """
    words = sys.argv[1:] or [""]
    candidates, takes_files = _candidates(words)
    lines = [line for line in candidates if line.startswith(words[-1])]
    directive = _WITH_FILES if takes_files else _WITHOUT_FILES
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, f":{directive}")))


def _candidates(words: list[str]) -> tuple[list[str], bool]:
    """Return candidates for the last word, and whether it may be a file."""
    os.environ[_WORDS] = "".join(f"{word}{_SEPARATOR}" for word in words)
    answer = StringIO()
    with redirect_stdout(answer):
        app(["__complete"], exit_on_error=False, print_error=False, result_action="return_value")
    _, _, stream = answer.getvalue().partition(f"{_SEPARATOR}begin\n")
    lines = stream.splitlines()
    prefix = next((line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)), "")
    candidates = [f"{prefix}{line}" for line in lines if not line.startswith(_SEPARATOR)]
    return candidates, _FILES in lines
