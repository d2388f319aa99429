"""The project's chart: what Helm makes of it, and Helm itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.e2e.build import executables
from tests.e2e.cluster import Cluster, Json
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import DEFINITIONS, undefine

CHART = Path(__file__).parents[2] / "charts" / "stowplan"
VALUE_SETS = sorted((CHART / "ci").glob("*-values.yaml"))
"""Files of values that the chart is tried with."""

ELASTIC_QUOTAS = "elasticquotas.scheduling.x-k8s.io"
POD_GROUPS = "podgroups.scheduling.x-k8s.io"
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

IMAGE = {"image.repository": "stowplan.example/stowplan"}
"""The one value that an installation cannot do without."""

_PATIENCE_SECONDS = 600  # nothing is proven by it: longer than hooks take on a busy machine


class HelmError(Exception):
    """Helm said no; the message is what it said."""


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm and return what it prints.

    Args:
        arguments: of the command line.
        kubeconfig: of the cluster; None for a command that needs none.

    Raises:
        HelmError: it failed.
    """
    access: list[str | Path] = ["--kubeconfig", kubeconfig] if kubeconfig else []
    done = subprocess.run(  # noqa: S603 - the arguments are those of our tests
        [executables().helm, *arguments, *access],
        # Without a HOME, Helm keeps what it discovers below the current folder.
        env={**os.environ, "KUBECACHEDIR": str(executables().helm.parent / "kube-cache")},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def rendered(
    *files: Path,
    namespace: str = "stowplan-system",
    release: str = "stowplan",
    chart: Path = CHART,
    values: Mapping[str, object] | None = None,
) -> list[Json]:
    """Return the manifests of an installation, those of hooks and tests included.

    They are those for the version of Kubernetes that the tests run on.

    Args:
        files: of values.
        namespace: it is installed into.
        release: its name.
        chart: its folder.
        values: on top of the files, by keys as `--set-json` takes them.

    Raises:
        HelmError: the chart refuses the values.
    """
    text = helm(
        *("template", release, chart, "--namespace", namespace),
        *("--kube-version", executables().version),
        *value_flags(*files, values=values),
    )
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(manifests: list[Json], kind: str, component: str = "webhook") -> Json:
    """Return the manifest of a kind that is no hook's: that of a component if there are several."""
    every = [
        one
        for one in manifests
        if one["kind"] == kind and "helm.sh/hook" not in one["metadata"].get("annotations", {})
    ]
    if len(every) > 1:
        label = "app.kubernetes.io/component"
        every = [one for one in every if one["metadata"]["labels"][label] == component]
    (found,) = every
    return found


@dataclass(frozen=True, slots=True)
class Release:
    """What is installed.

    Attributes:
        name: of the release, the account, and both configurations.
        namespace: where.
        kubeconfig: the admin's.
        chart: its folder.
    """

    name: str
    namespace: str
    kubeconfig: Path
    chart: Path = CHART

    async def change(self, **values: object) -> None:
        """Install, or upgrade to these values, without hooks; waits for nothing.

        Raises:
            HelmError: it is refused.
        """
        await self._change("--no-hooks", values=values)

    async def change_with_hooks(self, **values: object) -> None:
        """Upgrade to these values; waits for hooks, whose Jobs a test must let end.

        Raises:
            HelmError: it is refused, or a hook fails.
        """
        await self._change(values=values)

    async def upgrade(self, *flags: str) -> None:
        """Upgrade to this chart, as the docs say; waits for hooks.

        Raises:
            HelmError: it is refused, or a hook fails.
        """
        command = ("upgrade", self.name, self.chart, "--namespace", self.namespace)
        await self._helm(*command, "--reset-then-reuse-values", *flags)

    async def _change(self, *flags: str, values: Mapping[str, object]) -> None:
        command = ("upgrade", "--install", self.name, self.chart, "--namespace", self.namespace)
        await self._helm(*command, *flags, *value_flags(values=values))

    async def uninstall(self, *flags: str) -> None:
        """Remove it; waits for hooks.

        Raises:
            HelmError: it is not there, or a hook fails.
        """
        await self._helm("uninstall", self.name, "--namespace", self.namespace, *flags)

    async def _helm(self, *arguments: str | Path) -> None:
        await asyncio.to_thread(helm, *arguments, kubeconfig=self.kubeconfig)


@asynccontextmanager
async def released(
    cluster: Cluster, control_plane: ControlPlane, namespace: str, chart: Path = CHART
) -> AsyncIterator[Release]:
    """Install a chart as it comes until the block is left."""
    # The name has the chart's in it, so everything is named so; and no other test's release is.
    release = Release(f"stowplan-{namespace}", namespace, control_plane.kubeconfig(), chart)
    await release.change()
    try:
        yield release
    finally:
        for kind in CONFIGURATIONS:
            if release.name in {one["metadata"]["name"] for one in await cluster.list_all(kind)}:
                await cluster.delete(kind, release.name)
        with suppress(HelmError):  # the test may have removed it
            await release.uninstall("--no-hooks")
        await _take_definitions(cluster, release)


async def _take_definitions(cluster: Cluster, release: Release) -> None:
    """Take away the definitions of kinds that a release has brought: Helm leaves them."""
    found = [definition["metadata"] for definition in await cluster.list_all(DEFINITIONS)]
    owner = "meta.helm.sh/release-name"
    await undefine(
        cluster,
        {each["name"] for each in found if each.get("annotations", {}).get(owner) == release.name},
    )


def value_flags(*files: Path, values: Mapping[str, object] | None = None) -> Iterator[str]:
    """Yield the flags of Helm for files of values, and values on top of them."""
    for file in files:
        yield from ("--values", str(file))
    for key, value in {**IMAGE, **(values or {})}.items():
        yield from ("--set-json", f"{key}={json.dumps(value)}")
