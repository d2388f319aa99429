"""What can be said of the image without building it."""

from __future__ import annotations

import re
import subprocess
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
    for name in (*wheel["packages"], *wheel["shared-data"], "README.md"):
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


# How it is built.


def _made(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what `make` would do."""
    command = ["make", "--dry-run", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - ours


def test_what_builds_it_comes_by_hash() -> None:
    lock = (ROOT / "requirements-build.lock").read_text(encoding="utf-8")
    pinned = re.findall(r"^([A-Za-z0-9_.-]+==\S+) \\\n +--hash=sha256:", lock, re.MULTILINE)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(groups["dependency-groups"]["build"]) <= set(pinned)
    assert set(groups["build-system"]["requires"]) <= set(pinned)
    for installed in re.findall(r"pip install((?:\\\n|[^\n])*)", DOCKERFILE):
        assert "--require-hashes" in installed or "--no-deps dist/" in installed


def test_one_command_builds_it_and_one_brings_it_to_a_cluster() -> None:
    image = f"localhost/stowplan:{PROJECT['version']}"
    assert _made("image").stdout == f"docker build --tag {image} .\n"
    assert "docker save --output" in _made("load").stdout
    assert "kind load image-archive" in _made("load").stdout
    podman = _made("push", "CONTAINER_TOOL=podman", "IMAGE=registry.example/stowplan:1").stdout
    assert podman == "podman push registry.example/stowplan:1\n"


def test_a_release_is_not_built_on_a_base_that_may_change() -> None:
    refused = subprocess.run(
        ["make", "release", "IMAGE=registry.example/stowplan:1"],  # noqa: S607 - the one on PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode
    assert "PYTHON_IMAGE names the base image by its digest" in refused.stderr
    pinned = f"PYTHON_IMAGE=docker.io/library/python@sha256:{'0' * 64}"
    steps = _made("release", "IMAGE=registry.example/stowplan:1", pinned).stdout
    for wanted in ("--sbom=true", "--provenance=mode=max", "--push", "cosign sign"):
        assert wanted in steps
