"""How soon the dashboard of a live webhook shows a large cluster, and what that costs reviews.

Run as `python -m tests.bench.bench_dashboard [--nodes N] [--pods P]`. The webhook, its API server
and Chromium share this machine, so the seconds of the browser are upper bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from engine.model.time import micros
from engine.policy import PolicySet
from engine.report import nodes_report
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import loaded
from tests.browser import Visit, chromium, visit
from tests.e2e.ports import free_ports
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.serving.test_authorization import ACCESS, TOKENS
from tests.webhook.serving.test_services import LEAST_LIMITS, node
from webhook import pages
from webhook.dashboard.quotas import quotas_report
from webhook.settings import Settings

_ROUNDS = 7
_PROGRAM = Path(sys.executable).parent / "stowplan"
_READER = "reader"
_NEW = "a-new-node"
_PAINTED = """
() => new Promise((painted) => {
  new PerformanceObserver((list) => {
    for (const each of list.getEntries())
      if (each.name === "first-contentful-paint") painted(each.startTime);
  }).observe({ type: "paint", buffered: true });
})
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes of the cluster")
    parser.add_argument("--pods", type=int, default=20_000, help="pods on them")
    arguments = parser.parse_args()
    asyncio.run(_measure(arguments.nodes, arguments.pods))


async def _measure(nodes: int, pods: int) -> None:
    async with fake_api_server(tls=True) as server:
        key = _fill(server, nodes, pods)
        gc.freeze()  # a collection of what the API server holds would be a pause of the webhook's
        with TemporaryDirectory() as folder:
            async with (
                _webhook(server, Path(folder)) as url,
                chromium() as browser,
                visit(browser, token=_READER) as tab,
            ):
                await _print_browser(url, server, tab, key)
    _print_reports(nodes, pods)


@asynccontextmanager
async def _webhook(server: FakeApiServer, folder: Path) -> AsyncIterator[str]:
    """Run a webhook as a process of its own; yield the URL of its dashboard."""
    policy = folder / "policy.yaml"
    policy.write_text(LEAST_LIMITS, encoding="utf-8")
    (port,) = free_ports(1)
    ready = f"https://localhost:{port}"
    flags = [f"--kubeconfig={server.kubeconfig(folder)}", f"--policies={policy}", "--hold"]
    flags += ["--host=127.0.0.1", "--port=0", "--metrics-port=0", f"--dashboard-port={port}"]
    process = await asyncio.create_subprocess_exec(
        _PROGRAM, "serve", *flags, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    try:
        while not (await process.stdout.readline()).startswith(b"dashboard "):
            pass
        kinds = ("nodes", "pods", "nodemetrics", "elasticquotas.scheduling.x-k8s.io")
        await server.until(lambda: all(server.watches(kind) for kind in kinds))
        yield ready
    finally:
        process.terminate()
        await process.wait()


def _fill(server: FakeApiServer, nodes: int, pods: int) -> tuple[str, str]:
    """Put a cluster behind an API server that allows everything; return a pod of it."""
    user = {"username": "ann"}
    server.play("POST", TOKENS, lambda _: {"status": {"authenticated": True, "user": user}})
    server.play("POST", ACCESS, lambda _: {"status": {"allowed": True}})
    server.install("elasticquotas.scheduling.sigs.k8s.io")
    generated = GeneratedCluster(nodes=nodes, pods=pods)
    key = ("", "")
    for text in generated.objects():
        each = msgspec.json.decode(text)
        if each["kind"] == "Pod":
            server.put_pod(text)
            key = each["metadata"]["namespace"], each["metadata"]["name"]
        else:
            server.create(each)
    return key


def _print_reports(nodes: int, pods: int) -> None:
    """Print what keeps the event loop from reviews, and what a thread renders."""
    generated = GeneratedCluster(nodes=nodes, pods=pods)
    state, now = loaded(generated.objects(), PolicySet()), micros(generated.now)
    rules = Settings().queue_rules()
    report = nodes_report(state.view(), now)
    frame = pages.Frame(cluster="bench", is_live=True)
    figures: dict[str, Callable[[], object]] = {
        "report of nodes, on the event loop": lambda: nodes_report(state.view(), now),
        "report of quotas, on the event loop": lambda: quotas_report(
            state, rules, namespace="", groups=("scheduling.x-k8s.io",)
        ),
        "page of nodes, in a thread": lambda: pages.document(pages.nodes_page(report, {}), frame),
        "update of nodes, in a thread": lambda: pages.update(pages.nodes_page(report, {})),
    }
    for what, work in figures.items():
        print(f"{what:45} {_milliseconds(work):9.1f} ms")


def _milliseconds(work: Callable[[], object]) -> float:
    """Return the median processor time of some work."""
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return median(times) * 1_000


async def _print_browser(
    dashboard: str, server: FakeApiServer, tab: Visit, key: tuple[str, str]
) -> None:
    """Print how soon a person sees each page, and a change of it."""
    url = f"{dashboard}/dashboard"
    namespace, name = key
    for page in (
        "nodes",
        f"pod?namespace={namespace}&name={name}",
        "quotas",
        "queue",
        "policies",
    ):
        paints = []
        for _ in range(3):
            await tab.page.goto(f"{url}/{page}")
            paints.append(await tab.page.evaluate(_PAINTED))
        what = f"first paint of {page.partition('?')[0]}"
        print(f"{what:45} {paints[0]:9.0f} ms, again {median(paints[1:]):.0f} ms")
    await tab.page.goto(f"{url}/nodes?find={_NEW}")
    began = time.monotonic()
    server.create(node(_NEW))
    await tab.page.locator("td,th").get_by_text(_NEW).first.wait_for()
    print(f"{'update of nodes after an event':45} {time.monotonic() - began:9.1f} s")
    print(f"complaints of the browser: {tab.complaints or 'none'}")


if __name__ == "__main__":
    main()
