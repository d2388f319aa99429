"""The guide for authors is run: its files are written, its commands run and compared, in order.

What it does with one policy is then done with every policy that ships.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import junitparser
import msgspec
import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Log

from engine.policy import NodeExpression, load_policies
from tests.fake_api_server import FakeApiServer
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import CLUSTER, DATA, PROGRAM, ROOT
from tests.webhook.cli.test_live_cluster import POD_SPEC, deployment
from tests.webhook.cli.test_snapshot import serving
from tests.webhook.cluster.recording import fill
from webhook.cli.app import run as run_command
from webhook.cli.lint import LintReport


def steps_of(page: str) -> list[tuple[str, str, str]]:
    """Return the files and commands of a page: the name of a file, the language, the text."""
    return re.findall(
        r"(?:^Save this as `([\w.]+)`[^\n]*\n\n)?```(yaml|console)\n(.*?)```",
        (ROOT / "docs" / page).read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )


STEPS = steps_of("authoring.md")
COMMAND = re.compile(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", re.DOTALL | re.MULTILINE)
SHIPPED = sorted(path.parent.name for path in ROOT.glob("policies/*/policy.yaml"))
WIDTH = 100  # columns of the terminal that the guide shows


@pytest.fixture(scope="module")
def server() -> Iterator[FakeApiServer]:
    with serving() as running:
        fill(running)
        running.create(deployment("web", "shop", POD_SPEC))
        yield running


def ran(command: str, folder: Path, kubeconfig: Path) -> str:
    """Return what a command of the guide prints, on both streams.

    One that reads a live cluster is a process of its own, for its client reads the environment when
    it is imported.
    """
    environment = {"COLUMNS": str(WIDTH), "TERM": "dumb", "KUBECONFIG": str(kubeconfig)}
    run = ran_alone if "--live" in command else ran_here
    status, printed = run(command, folder, environment)
    assert status == 0, printed
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip()


def ran_alone(command: str, folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    finished = subprocess.run(  # noqa: S603 - the guide is ours
        ["/bin/bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{PROGRAM.parent}:{os.defpath}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return finished.returncode, finished.stdout


def ran_here(command: str, folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    program, *arguments = shlex.split(command)
    assert program == PROGRAM.name
    printed = StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(folder),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        status = run_command(arguments)
    return status, printed.getvalue()


def shown_commands(steps: list[tuple[str, str, str]], folder: Path, kubeconfig: Path) -> list[str]:
    """Write the files of a page and run its commands; return those, which print what it shows."""
    shown = list[str]()
    for name, language, text in steps:
        if language == "yaml":
            (folder / name).write_text(text, encoding="utf-8")
            continue
        for command, output in COMMAND.findall(text):
            # Three dots stand for any text.
            pattern = ".*".join(re.escape(part.strip("\n")) for part in output.strip().split("..."))
            printed = ran(command, folder, kubeconfig)
            assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\n{printed}"
            shown.append(command.split()[1])
    return shown


def test_the_page_on_lint_shows_what_it_prints(tmp_path: Path) -> None:
    assert shown_commands(steps_of("lint.md"), tmp_path, tmp_path / "none") == ["lint"]


def test_the_guide_shows_what_its_commands_print(server: FakeApiServer, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    shutil.copytree(DATA, folder / "demo")
    shown = shown_commands(STEPS, folder, server.kubeconfig(home))
    assert set(shown) == {"init", "lint", "test", "import", "eval", "explain"}
    Log.model_validate_json((folder / "lint.sarif").read_bytes())
    assert junitparser.JUnitXml.fromfile(str(folder / "results.xml")).tests == 2


@pytest.fixture(scope="module")
def deployment_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Deployment of the guide, as a file."""
    file = tmp_path_factory.mktemp("guide") / "web.yaml"
    (text,) = (text for name, _, text in STEPS if name == file.name)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_passes_lint_test_explain_and_eval(
    name: str, deployment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str | Path) -> str:
        status = run_command([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert status == 0, f"{arguments}: {out}{err}"
        return out

    sarif, junit = tmp_path / "lint.sarif", tmp_path / "results.xml"
    report = msgspec.json.decode(run("lint", name, "--json", "--sarif", sarif), type=LintReport)
    assert [policy.name for policy in report.policies] == [name]
    Log.model_validate_json(sarif.read_bytes())
    assert "no difference\n" in run("test", name, "--cross-check", "--junit", junit)
    assert all(
        test.is_passed for suite in junitparser.JUnitXml.fromfile(str(junit)) for test in suite
    )
    decision = json.loads(run("explain", deployment_file, *CLUSTER, "--policies", name, "--json"))
    assert decision["pod"] == {"namespace": "shop", "name": "web-*"}
    for policy in load_policies([ROOT / "policies" / name]):
        for rule in policy.rules:
            if isinstance(rule.evaluator, NodeExpression):
                expression = rule.evaluator.program.source
                given = ("--pod", deployment_file, "--policies", name, "--json")
                values = json.loads(run("eval", expression, *CLUSTER, *given))
                assert values
