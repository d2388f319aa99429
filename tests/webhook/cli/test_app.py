from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import CLUSTER, POD, POLICIES, PROGRAM, ROOT, Stowplan, process
from webhook.cli.app import app, complete_for_kubectl
from webhook.identity import VERSION

FOR_KUBECTL = PROGRAM.with_name("kubectl_complete-stowplan")


ForKubectl: TypeAlias = Callable[..., tuple[list[str], str]]


@pytest.fixture
def for_kubectl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> ForKubectl:
    """Return how to ask for the candidates for the last word, and the directive after them."""

    def ask(*words: str) -> tuple[list[str], str]:
        monkeypatch.setattr("sys.argv", [FOR_KUBECTL.name, *words])
        complete_for_kubectl()
        return answer_of(capsys.readouterr().out)

    return ask


def answer_of(printed: str) -> tuple[list[str], str]:
    """Return candidates without their descriptions, and the directive."""
    *candidates, directive = printed.splitlines()
    return [line.partition("\t")[0] for line in candidates], directive


def test_bash_completes_commands_and_options(stowplan: Stowplan, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(stowplan("completion", "bash").out)
    ask = f"""
    source {script}
    for words in "stowplan li" "stowplan lint --sa"; do
      COMP_WORDS=($words); COMP_CWORD=$(({{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
      _stowplan; echo "${{COMPREPLY[@]}}"
    done
    """.replace("{#COMP_WORDS", "${#COMP_WORDS")
    ran = subprocess.run(  # noqa: S603 - the script is ours
        ["/bin/bash", "-c", ask],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{PROGRAM.parent}:{os.defpath}"},
    )
    assert (ran.stdout.split(), ran.stderr) == (["lint", "--sarif"], "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_scripts(shell: str, stowplan: Stowplan) -> None:
    script = stowplan("completion", shell).out
    assert "stowplan" in script
    if program := shutil.which(shell):
        subprocess.run([program, "--no-execute"], input=script, text=True, check=True)  # noqa: S603


def test_an_unknown_shell_is_refused(stowplan: Stowplan) -> None:
    ran = stowplan("completion", "tcsh")
    assert (ran.status, ran.out) == (1, "")


def test_kubectl_completes_commands(for_kubectl: ForKubectl) -> None:
    ran = subprocess.run([FOR_KUBECTL, "li"], check=True, capture_output=True, text=True)  # noqa: S603
    assert (answer_of(ran.stdout), ran.stderr) == ((["lint"], ":4"), "")
    assert "explain" in for_kubectl("")[0]


def test_kubectl_completes_options_and_files(for_kubectl: ForKubectl) -> None:
    assert for_kubectl("test", "policies", "--ju") == (["--junit"], ":4")
    assert for_kubectl("lint", "") == ([], ":0")


COMMANDS = ("demo", "explain", "lint", "serve", "snapshot", "test")


def test_the_version_is_that_of_the_package(stowplan: Stowplan) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    ran = stowplan("--version")
    assert (ran.status, ran.out) == (None, f"{importlib.metadata.version('stowplan')}\n")


def test_the_page_of_commands_lists_all_of_them() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    commands = [name for name in app if not name.startswith("-")]
    assert re.findall(r"^\| `([a-z]+)", page, re.MULTILINE) == sorted(commands)


HEAVY = {
    ("--version",): ("rich", "pydantic", "numpy", "msgspec", "importlib.metadata", "engine.model"),
    ("--help",): ("aiohttp", "kubernetes", "numpy", "msgspec", "engine.model"),
    ("lint", "balanced"): (
        *("aiohttp", "asyncio", "cryptography", "jinja2", "kubernetes", "logging", "plotly", "ssl"),
        *("prometheus_client", "pydantic_settings", "requests", "xml"),
        *("engine.batch", "engine.eviction", "engine.simulation"),
        *("webhook.cluster", "webhook.serving"),
    ),
}
"""What commands do not need, and would take long to import."""

STARTED = """
import sys
from webhook.cli.app import run
run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("command", HEAVY, ids=" ".join)
def test_a_quick_command_imports_nothing_heavy(command: tuple[str, ...]) -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", STARTED, *command],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert not set(ran.stderr.split()) & set(HEAVY[command])


def test_the_webhook_imports_nothing_that_only_people_at_a_desk_need() -> None:
    imported = "import sys, webhook.cli.serve, webhook.serving.composition; print(*sys.modules)"
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", imported], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert not set(ran.stdout.split()) & {"jinja2", "narwhals", "plotly", "pygments", "rich"}


def test_help_names_every_command_and_what_exit_statuses_mean(stowplan: Stowplan) -> None:
    ran = stowplan("--help")
    assert ran.status is None
    assert "Exit status: 0 allowed or all well" in " ".join(ran.out.split())
    for command in COMMANDS:
        assert f"│ {command} " in ran.out


def test_empty_defaults_are_not_shown(stowplan: Stowplan) -> None:
    assert "default: ]" not in stowplan("queue", "--help").out


def test_each_option_of_a_simulation_is_described(stowplan: Stowplan) -> None:
    lines = stowplan("simulate", "--help").out.splitlines()
    options = [re.match(r"│ \*? +(--[a-z-]+)(?: [A-Z.]+)? +(.*?) *│$", line) for line in lines]
    described = {found[1]: found[2] for found in options if found}
    assert {"--cluster", "--repack-seconds", "--json"} <= described.keys()
    assert [name for name, text in described.items() if not text or text.startswith("[")] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(stowplan: Stowplan, command: str) -> None:
    ran = stowplan(command, "--help")
    assert ran.status is None
    assert f"Usage: stowplan {command}" in ran.out
    assert not ran.err


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["expl"], "unknown command `expl`. Did you mean `explain`?", "see `stowplan --help`"),
        (["explain"], "argument `POD` is missing", "see `stowplan explain --help`"),
        (["explain", POD], "option `--cluster` is missing", "see `stowplan explain --help`"),
        (["explain", POD, "--cluster"], "--cluster needs a value", "see `stowplan explain --help`"),
        (["snapshot"], "option `--output` is missing", "see `stowplan snapshot --help`"),
        (["snapshot", "-o"], "-o needs a value", "see `stowplan snapshot --help`"),
        (["test", "policies", "--vrbose"], "unknown option: --vrbose. Did you mean --verbose?", ""),
        (["serve", "--prt", "1"], "unknown option: --prt", "see `stowplan serve --help`"),
        (
            ["explain", POD, *CLUSTER, *POLICIES, "policies/balanced"],
            "unexpected argument `policies/balanced`",
            "repeat a flag for each of its values",
        ),
        (
            ["explain", POD, *CLUSTER, *POLICIES, "--now", "yesterday"],
            "--now: expected a moment, as `2026-03-02T10:00:00Z`, not `yesterday`",
            "",
        ),
        (
            ["explain", POD, *CLUSTER, *POLICIES, "--nodes", "few"],
            "--nodes: expected a whole number, not `few`",
            "",
        ),
        (["explain", POD, *CLUSTER, *POLICIES, "--nodes", "-1"], "must be >= 0", ""),
        (["dashboard", *CLUSTER, "--port", "70000"], "must be <= 65535", ""),
        (["queue", "--most", "0"], "must be > 0", ""),
        (
            ["explain", "svc/web", *CLUSTER, *POLICIES],
            "there is no file `svc/web`, and `svc` makes no pods",
            "the types are pods, cronjobs",
        ),
    ],
)
def test_wrong_arguments_are_named_with_a_hint(
    stowplan: Stowplan, arguments: list[str | Path], message: str, hint: str
) -> None:
    ran = stowplan(*arguments)
    assert (ran.status, ran.out) == (1, "")
    assert message.lower() in ran.err.lower()
    assert f"hint: {hint}" in ran.err


@pytest.mark.parametrize("command", [["lint", POLICIES[1]], ["--help"]])
def test_a_reader_that_has_left_is_no_reason_for_a_traceback(command: list[str]) -> None:
    with process(*command) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 1


def test_a_place_that_cannot_be_written_is_named(stowplan: Stowplan, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ran = stowplan("init", file / "policies")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"{file / 'policies'}: not a directory\n"


def test_a_full_disk_is_said_in_one_line() -> None:
    with (
        Path("/dev/full").open("w") as full,
        process("lint", POLICIES[1], stdout=full) as running,
    ):
        _, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, err) == (1, "no space left on device\n")


def test_an_empty_kubeconfig_variable_is_as_good_as_none(tmp_path: Path) -> None:
    with process("queue", KUBECONFIG="", HOME=str(tmp_path)) as running:
        _, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 1
    assert err.startswith("there is no kubeconfig `~/.kube/config`\n")


@pytest.mark.parametrize("command", [name for name in app if not name.startswith("-")])
def test_help_describes_each_argument(command: str) -> None:
    described = app[command].assemble_argument_collection()
    assert not [each.name for each in described if each.show and not each.parameter.help]
