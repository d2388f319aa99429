"""The servers of the bench, each a process: an API server, `stowplan serve`, and the floor."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.bench.load.api_server import CONTROL_PATH, FORGET_PATH
from tests.bench.load.certificates import Certificates
from tests.bench.load.messages import Target
from tests.bench.load.processes import Usage, usage_of
from tests.bench.load.scrape import Scrape, scraped
from tests.e2e.part import READY_WITHIN_SECONDS, Part

_HOST = "127.0.0.1"
_PROGRAM = str(Path(sys.executable).with_name("stowplan"))
_PATIENCE_SECONDS = 10
_ASK_AGAIN_SECONDS = 0.5


class MeasuredPart(Part):
    """A process that is measured."""

    @property
    def usage(self) -> Usage:
        """What it has used.

        Raises:
            RuntimeError: it does not run.
        """
        if self.pid is None:
            raise RuntimeError(f"{self.name} does not run")
        return usage_of(self.pid)


class Server(MeasuredPart):
    """A `stowplan serve` on the generated cluster.

    Args:
        name: of the process and its log.
        folder: for the log.
        options: of `stowplan serve`.
        ca: file of the authority that signed its certificate.

    Attributes:
        target: where its reviews go.
        ready_after: seconds from its start until it was ready.
        ready_with: seconds of processor time it took.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        options: Sequence[str],
        ca: Path,
    ) -> None:
        port, metrics_port = _free_ports(2)
        self.target = Target(port=port, path="/mutate", ca_file=str(ca))
        self.ready_after = self.ready_with = 0.0
        self._trust = ssl.create_default_context(cafile=ca)
        self._metrics_url = f"http://{_HOST}:{metrics_port}/metrics"
        command = [_PROGRAM, "serve", f"--host={_HOST}", f"--port={port}"]
        command += [f"--metrics-port={metrics_port}", *options]
        super().__init__(name, command, folder / f"{name}.log", self._is_ready)

    def start(self, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Start it, and wait until it is ready."""
        started = time.monotonic()
        super().start(within_seconds)
        self.ready_after = time.monotonic() - started
        self.ready_with = self.usage.cpu_seconds

    def scrape(self) -> Scrape:
        """Return its metrics as of now."""
        return scraped(self._metrics_url)

    def detail(self) -> dict[str, Any]:
        """Return what it works with."""
        detail: dict[str, Any] = json.loads(self._ask("/statusz"))
        return detail

    def review(self, body: bytes) -> dict[str, Any]:
        """Return its response to a review."""
        response: dict[str, Any] = json.loads(self._ask("/mutate", body))["response"]
        return response

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        url = f"https://localhost:{self.target.port}{path}"
        headers = {"Content-Type": "application/json"} if body else {}
        request = urllib.request.Request(url, data=body, headers=headers)
        with urllib.request.urlopen(  # noqa: S310 (ours)
            request, context=self._trust, timeout=_PATIENCE_SECONDS
        ) as answer:
            text: bytes = answer.read()
            return text

    def _is_ready(self) -> bool:
        time.sleep(_ASK_AGAIN_SECONDS)  # each answer is work for a server that has much to do
        try:
            return bool(json.loads(self._ask("/readyz"))["ready"])
        except OSError:
            return False


class ApiServer(MeasuredPart):
    """The API server with the generated cluster."""

    def __init__(self, folder: Path, sizes: Sequence[str], events: float) -> None:
        self.kubeconfig = folder / "kubeconfig"
        module = "tests.bench.load.api_server"
        command = [sys.executable, "-m", module, *sizes, f"--events={events}"]
        command.append(f"--folder={folder}")
        super().__init__("api-server", command, folder / "api-server.log", self.kubeconfig.exists)

    def begin_events(self) -> None:
        """Let things happen in the cluster."""
        self._tell(CONTROL_PATH, happening=True)

    def end_events(self) -> int:
        """Let nothing happen any more; returns how many events there were."""
        return self._tell(CONTROL_PATH, happening=False)

    def forget_history(self) -> None:
        """Have the watch of pods begin with a new list."""
        self._tell(FORGET_PATH)

    def _tell(self, path: str, **asked: bool) -> int:
        cluster = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]
        server, ca = (cluster["cluster"][key] for key in ("server", "certificate-authority"))
        body = json.dumps(asked).encode()
        request = urllib.request.Request(f"{server}{path}", data=body)  # noqa: S310 (ours)
        trust = ssl.create_default_context(cafile=ca)
        with urllib.request.urlopen(  # noqa: S310 (ours)
            request, context=trust, timeout=_PATIENCE_SECONDS
        ) as answer:
            return int(json.loads(answer.read())["events"])


class Floor(MeasuredPart):
    """The server of stowplan without what it is for."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self._ports = folder / "ports"
        self._ca = certificates.ca
        module = "tests.bench.load.pass_through"
        command = [sys.executable, "-m", module, *certificates.flags, f"--folder={folder}"]
        super().__init__("floor", command, folder / "floor.log", self._ports.exists)

    def target(self, path: str, *, tls: bool = True) -> Target:
        """Return where reviews go."""
        ports = self._ports.read_text(encoding="ascii").split()
        port = int(ports[0 if tls else 1])
        return Target(port=port, path=path, ca_file=str(self._ca) if tls else "")


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [one.getsockname()[1] for one in sockets]
