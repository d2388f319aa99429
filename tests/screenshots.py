"""Take the pictures of the documentation: `python -m tests.screenshots`, with Chromium installed.

They show made-up clusters, the same each time: one of 1,000 nodes as `stowplan dashboard` does, and
the report of `stowplan simulate` on one of 60 nodes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from yarl import URL

from tests.bench.generate import GeneratedCluster, kubectl_list
from tests.browser import Visit, chromium, visit
from tests.eks import EksCluster

DOCS = Path(__file__).parents[1] / "docs"
POLICIES = DOCS.parent / "policies" / "balanced"
_PROGRAM = Path(sys.executable).parent / "stowplan"
_WIDTH, _HEIGHT = 1280, 740


def main() -> None:
    """Write `docs/dashboard-nodes.png`, `docs/dashboard-pod.png` and `docs/report.png`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        generated = GeneratedCluster(nodes=1_000, pods=30_000)
        with file.open("wb") as out:
            out.writelines(kubectl_list(generated.objects()))
        asyncio.run(_take(file))
        EksCluster().write(Path(folder) / "eks")
        asyncio.run(_take_report(Path(folder) / "eks", Path(folder) / "report.html"))


async def _take(cluster: Path) -> None:
    flags = ["--cluster", str(cluster), "--policies", str(POLICIES), "--no-browser"]
    process = await asyncio.create_subprocess_exec(
        _PROGRAM, "dashboard", *flags, stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    try:
        await process.stdout.readline()
        url = URL((await process.stdout.readline()).decode().strip())
        async with chromium() as browser, visit(browser) as tab:
            await tab.page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
            await tab.page.goto(str(url))
            await _shoot(tab, f"{url.with_query(None)}nodes?measure=load", "dashboard-nodes.png")
            query = urlencode({"namespace": "team-003", "name": "replicaset-00010-bklbb"})
            await _shoot(tab, f"{url.with_query(None)}pod?{query}", "dashboard-pod.png")
    finally:
        process.terminate()
        await process.wait()


async def _take_report(cluster: Path, page: Path) -> None:
    flags = ["--cluster", str(cluster), "--arm", "balanced", "--html", str(page)]
    process = await asyncio.create_subprocess_exec(_PROGRAM, "simulate", *flags)
    if await process.wait():
        raise AssertionError("the simulation failed")
    async with chromium() as browser, visit(browser) as tab:
        await tab.page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
        await _shoot(tab, page.as_uri(), "report.png")


async def _shoot(tab: Visit, url: str, name: str) -> None:
    await tab.page.goto(url)
    await tab.page.wait_for_load_state("networkidle")
    await tab.page.screenshot(path=DOCS / name)
    print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
