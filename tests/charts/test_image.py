"""What can be said of the image without building it."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.charts.generated import CHART, ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_all_that_is_copied_is_sent_to_the_build() -> None:
    sent = re.findall(
        r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE
    )
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert sorted(sent) == sorted(" ".join(copied).split())
    for name in sent:
        assert (ROOT / name).exists()


def test_all_that_the_wheel_takes_is_there_when_it_is_made() -> None:
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    before_install = DOCKERFILE.partition("--no-deps")[0]
    for name in (*wheel["packages"], *wheel["shared-data"], PROJECT["readme"]):
        assert re.search(rf"^COPY .*\b{re.escape(name)}\b", before_install, re.MULTILINE), name


def test_kubectl_finds_the_command_line_as_a_plugin() -> None:
    assert PROJECT["scripts"]["kubectl-stowplan"] == PROJECT["scripts"]["stowplan"]


def test_what_is_installed_comes_from_the_lock() -> None:
    locked = {_normal(name) for name in re.findall(r"^([A-Za-z0-9_.-]+)==", LOCK, re.MULTILINE)}
    for requirement in PROJECT["dependencies"]:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert name
        assert _normal(name[0]) in locked
    assert "--require-hashes" in DOCKERFILE
    assert "--constraint requirements.lock" in DOCKERFILE


def test_the_final_stage_installs_nothing() -> None:
    assert not re.search(r"pip install|uv |apt-get", FINAL)


def test_it_runs_as_the_user_the_chart_asks_for_and_starts_a_command_there_is() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    context = values["podSecurityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in FINAL
    (command,) = re.findall(r'ENTRYPOINT \["(\w+)"\]', FINAL)
    assert command in PROJECT["scripts"]


def test_the_versions_are_those_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == PROJECT["version"]
    assert f":{PROJECT['version']}\n" in chart["annotations"]["artifacthub.io/images"]
