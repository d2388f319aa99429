"""A real Kubernetes control plane, once for all end-to-end tests of a process.

`make e2e` runs them in two processes, each file in one of them: most of their time is waiting.
Plain `pytest` does not collect this folder. A test asks for what it needs:

- `cluster`: create, get, list, watch, patch, delete any object, as the admin;
- `namespace`: a new one, emptied afterwards;
- `nodes`: `await nodes.add("node-a")`; bound pods become Running there;
  `await nodes.known(namespace)`: the scheduler knows them;
- `release`: the chart, installed in `namespace`; `shop`: a namespace beside it;
- `metrics_api`: metrics.k8s.io; `crds`: NodeMetric and both ElasticQuotas; `reviewer`: a webhook;
- `control_plane`: the processes, to stop, kill, pause and start again.

Starting replicas takes longer than most tests. Tests of one file that need the same installation,
and leave it as it is, share it by a fixture of scope `module`: `loop_thread.entered`, as in
`test_quota_evasion.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.build import BuildError, executables
from tests.e2e.chart import Release, released
from tests.e2e.cluster import Cluster, connected
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.definitions import defined, definitions_of_others
from tests.e2e.installed import Installed
from tests.e2e.metrics_server import MetricsServer, metrics_server
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes, nodes_of
from tests.e2e.part import tail_of
from tests.e2e.reviewer import Reviewer, reviewing

_RUNNING = pytest.StashKey[ControlPlane]()
_LOGGED_BEFORE = pytest.StashKey[dict[Path, int]]()
_LINES, _WIDTH = 12, 200  # of each log that is shown: what failed must not drown in them


def pytest_configure(config: pytest.Config) -> None:
    """Pass over what Python 3.11 leaves open where a server that is killed cuts a handshake."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <ssl.SSLSocket:ResourceWarning")


@pytest.fixture(scope="session")
def one_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The control plane of the whole run; tests ask for `control_plane`."""
    try:
        programs = executables()
    except BuildError as error:
        pytest.exit(str(error), returncode=1)
    with running(programs, tmp_path_factory.mktemp("control-plane")) as control_plane:
        request.config.stash[_RUNNING] = control_plane
        yield control_plane


@pytest.fixture
def control_plane(one_control_plane: ControlPlane) -> ControlPlane:
    """The control plane, whole, whatever an earlier test did to it."""
    one_control_plane.start()
    return one_control_plane


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """The cluster as its admin sees it."""
    async with connected(control_plane) as client:
        yield client


@pytest.fixture
async def nodes(cluster: Cluster) -> AsyncIterator[Nodes]:
    """Nodes to add to; they are gone after the test."""
    async with nodes_of(cluster) as found:
        yield found


@pytest.fixture
async def namespace(cluster: Cluster, nodes: Nodes) -> AsyncIterator[str]:  # noqa: ARG001 (pods end on them)
    """The name of a new namespace; nothing of it runs after the test."""
    async with passing_namespaces(cluster, f"e2e-{uuid.uuid4().hex[:8]}") as (name,):
        yield name


@pytest.fixture
async def metrics_api(
    cluster: Cluster, control_plane: ControlPlane
) -> AsyncIterator[MetricsServer]:
    """metrics.k8s.io, with the usage a test puts in."""
    async with metrics_server(cluster, control_plane.authority) as server:
        yield server


@pytest.fixture
async def crds(cluster: Cluster) -> AsyncIterator[None]:
    """The definitions of NodeMetric and of ElasticQuota in both groups."""
    async with defined(cluster, *definitions_of_others()):
        yield


@pytest.fixture
async def reviewer(control_plane: ControlPlane) -> AsyncIterator[Reviewer]:
    """A webhook that allows everything and remembers what it was asked."""
    async with reviewing(control_plane.authority) as hook:
        yield hook


@pytest.fixture
async def release(
    cluster: Cluster, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[Release]:
    """The chart as it comes; nothing of it is there after the test."""
    async with released(cluster, control_plane, namespace) as found:
        yield found


@pytest.fixture
async def shop(cluster: Cluster, namespace: str) -> AsyncIterator[str]:
    """A namespace beside that of the installation; it goes with its pods."""
    async with passing_namespaces(cluster, f"{namespace}-shop") as (name,):
        yield name


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember where the logs of the control plane end as a test begins."""
    control_plane = item.config.stash.get(_RUNNING, None)
    logs = [part.log for part in control_plane.parts] if control_plane is not None else []
    item.config.stash[_LOGGED_BEFORE] = {log: log.stat().st_size for log in logs if log.exists()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what was logged during a test that failed, and below it once more how it failed."""
    report = yield
    control_plane = item.config.stash.get(_RUNNING, None)
    if report.failed and control_plane is not None:
        logs = [part.log for part in control_plane.parts]
        values = item.funcargs.values() if isinstance(item, pytest.Function) else ()
        folders = {
            one.folder if isinstance(one, Installed) else one
            for one in values
            if isinstance(one, Installed | Path)
        }
        logs += sorted(log for folder in folders for log in folder.glob("*.log"))
        before = item.config.stash[_LOGGED_BEFORE]
        report.sections += [
            (f"log of {log.stem}", tail_of(log, _LINES, width=_WIDTH, after=before.get(log, 0)))
            for log in logs
            if log.exists()
        ]
        crash = getattr(report.longrepr, "reprcrash", None)
        report.sections.append(("failure", str(crash or report.longrepr)))
    return report
