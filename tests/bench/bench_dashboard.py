"""How soon the dashboard of a live webhook shows a large cluster, and what that costs reviews.

Run as `python -m tests.bench.bench_dashboard [--nodes N] [--pods P]`. The webhook, its API server
and Chromium share this machine, so the seconds of the browser are upper bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from engine.report import nodes_report
from tests.bench.generate import GeneratedCluster
from tests.browser import Visit, chromium, visit
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.conftest import Caller
from tests.webhook.serving.test_authorization import ACCESS, TOKENS
from tests.webhook.serving.test_services import node, replica
from webhook import pages
from webhook.dashboard.quotas import quotas_report
from webhook.settings import Settings

_ROUNDS = 7
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
        with TemporaryDirectory() as folder:
            async with replica(server, Path(folder), dashboard_port=0, hold=True) as caller:
                _print_reports(caller)
                async with chromium() as browser, visit(browser, token=_READER) as tab:
                    await _print_browser(caller, server, tab, key)


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


def _print_reports(caller: Caller) -> None:
    """Print what keeps the event loop from reviews, and what a thread renders."""
    cluster, rules = caller.server.cluster, Settings().queue_rules()
    state = cluster.state
    report = nodes_report(cluster.view(), cluster.now())
    frame = pages.Frame(cluster="bench", is_live=True)
    figures: dict[str, Callable[[], object]] = {
        "report of nodes, on the event loop": lambda: nodes_report(cluster.view(), cluster.now()),
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
    caller: Caller, server: FakeApiServer, tab: Visit, key: tuple[str, str]
) -> None:
    """Print how soon a person sees each page, and a change of it."""
    url = f"{caller.server.dashboard_url}/dashboard"
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
