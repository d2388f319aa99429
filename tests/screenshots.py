"""Take the pictures of the documentation: `python -m tests.screenshots`, with Chromium installed.

They show a made-up cluster of 1,000 nodes, the same each time, as `stowplan dashboard` does.
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

DOCS = Path(__file__).parents[1] / "docs"
POLICIES = DOCS.parent / "policies" / "balanced"
_PROGRAM = Path(sys.executable).parent / "stowplan"
_WIDTH, _HEIGHT = 1280, 740


def main() -> None:
    """Write `docs/dashboard-nodes.png` and `docs/dashboard-pod.png`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        generated = GeneratedCluster(nodes=1_000, pods=30_000)
        with file.open("wb") as out:
            out.writelines(kubectl_list(generated.objects()))
        asyncio.run(_take(file))


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


async def _shoot(tab: Visit, url: str, name: str) -> None:
    await tab.page.goto(url)
    await tab.page.wait_for_load_state("networkidle")
    await tab.page.screenshot(path=DOCS / name)
    print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
