"""The image of the chart: what is in it, that it is the same each time, and that it serves."""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.chart import CHART, Release, helm
from tests.e2e.chart_image import (
    ROOT,
    built,
    contents,
    context,
    stages,
    where_nothing_is_written,
)
from tests.e2e.chart_replicas import one_beside
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.nodes import Nodes

_TOOLS = {"hatchling", "pip", "setuptools", "uv", "wheel"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is sent to a build."""
    return context(tmp_path_factory.mktemp("sources") / "context")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> Path:
    """What the final stage copies, built once."""
    return built(tmp_path_factory.mktemp("image") / "build", sources)


@pytest.fixture
def packed(release: Release, tmp_path: Path) -> Release:
    """The release, to be changed by the chart as it is published."""
    helm("package", CHART, "--destination", tmp_path)
    (chart,) = tmp_path.glob("*.tgz")
    return replace(release, chart=chart)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_final_stage_only_takes_away_and_copies() -> None:
    *_, final = stages()
    copied = [text for name, text in final if name == "COPY"]
    assert copied == ["--from=build /opt/stowplan /opt/stowplan"]
    (done,) = (text for name, text in final if name == "RUN")
    assert {line.split()[0] for line in done.split("&&")} == {"python", "rm"}
    (user,) = (text for name, text in final if name == "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)  # `runAsNonRoot` believes numbers alone
    (variables,) = (text for name, text in final if name == "ENV")
    assert "HOME=/ " in variables  # such a user has none by itself


def test_it_holds_what_is_locked_and_nothing_to_build_with(prefix: Path) -> None:
    (packages,) = prefix.glob("lib/python3*/site-packages")
    found = {
        _normal(one.name): one.version
        for one in importlib.metadata.distributions(path=[str(packages)])
    }
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {
        (_normal(name), version)
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)
    }
    assert found.pop("stowplan")
    assert found
    assert found.items() <= locked
    assert not _TOOLS & set(found)


def test_nobody_else_may_write_into_it(prefix: Path) -> None:
    open_to_all = [
        path
        for path in prefix.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & stat.S_IWOTH
    ]
    assert not open_to_all


def test_it_is_the_same_whenever_it_is_built(prefix: Path, sources: Path) -> None:
    before = contents(prefix)
    assert contents(built(prefix.parents[1], sources)) == before


def test_it_tells_its_commands_where_nothing_can_be_written(prefix: Path) -> None:
    command = where_nothing_is_written(prefix, "stowplan")
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
    tried = where_nothing_is_written(prefix, "python")
    write = f"open({str(prefix / 'written')!r}, 'w')"
    done = subprocess.run([*tried, "-c", write], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.usefixtures("crds")
async def test_it_serves_a_cluster_with_the_packed_chart_from_a_root_that_is_read_only(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    packed: Release,
    prefix: Path,
    tmp_path: Path,
    address: str,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    async with one_beside(
        packed,
        control_plane,
        cluster,
        tmp_path,
        namespace="default",
        prefers="node-b",
        program=where_nothing_is_written(prefix, "stowplan"),
        address=address,
    ) as replica:
        await asyncio.to_thread(replica.stop)
        assert "Traceback" not in replica.text()
