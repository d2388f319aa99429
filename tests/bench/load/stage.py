"""All that runs in the bench, and a way to start and end it together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.load.certificates import Certificates
from tests.bench.load.messages import Phase, Window
from tests.bench.load.parts import ApiServer, Floor, Server
from tests.bench.load.processes import Usage, usage_of
from tests.e2e.part import READY_WITHIN_SECONDS

_PODS_PER_SECOND: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is put on the stage.

    Attributes:
        events: of pods and nodes per second.
        policy: the file of the policies; copied, so that it can be changed.
        options: more flags of `stowplan serve`.
    """

    nodes: int
    pods: int
    events: float
    policy: Path
    options: tuple[str, ...] = ()

    @property
    def sizes(self) -> list[str]:
        """The flags that describe the cluster to our own processes."""
        return [f"--nodes={self.nodes}", f"--pods={self.pods}"]

    @property
    def ready_within_seconds(self) -> float:
        """How long a server may take until it has all objects, beside other work."""
        return READY_WITHIN_SECONDS + self.pods / _PODS_PER_SECOND


class Sender:
    """Sends reviews from a process of its own."""

    def __init__(self, plan: Plan) -> None:
        command = [sys.executable, "-m", "tests.bench.load.sender", *plan.sizes]
        self._process = subprocess.Popen(  # noqa: S603 (ours)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def send(self, phase: Phase) -> Iterator[Window]:
        """Have the reviews of a phase sent; yield what came of them, window by window.

        Raises:
            RuntimeError: the process is gone.
        """
        orders, answers = self._process.stdin, self._process.stdout
        if orders is None or answers is None:
            raise AssertionError("both are pipes")
        orders.write(msgspec.json.encode(phase) + b"\n")
        orders.flush()
        while True:
            line = answers.readline()
            if not line:
                raise RuntimeError("who sends reviews is gone")
            window = msgspec.json.decode(line, type=Window)
            yield window
            if window.last:
                return

    @property
    def usage(self) -> Usage:
        """What the process has used."""
        return usage_of(self._process.pid)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All that runs.

    Attributes:
        policy: the file the server takes its policies from.
    """

    plan: Plan
    folder: Path
    api_server: ApiServer
    server: Server
    sender: Sender
    certificates: Certificates
    policy: Path

    def another_server(self, name: str) -> Server:
        """Return a second server, not started, on the same cluster with the same files."""
        return _server(name, self.folder, self.plan, self.certificates, self.api_server)

    def usages(self) -> dict[str, Usage]:
        """Return what each process has used."""
        return {
            "server": self.server.usage,
            "API server": self.api_server.usage,
            "sender": self.sender.usage,
        }

    def floor(self) -> Floor:
        """Return the floor, not started."""
        return Floor(self.folder, self.certificates)


@contextmanager
def staged(plan: Plan, folder: Path) -> Iterator[Stage]:
    """Start everything but the floor; whatever happens, nothing is left running.

    Args:
        plan: of what.
        folder: for logs and files; exists.
    """
    with ExitStack() as stack:
        certificates = Certificates(folder)
        shutil.copyfile(plan.policy, folder / "policy.yaml")
        api_server = ApiServer(folder, plan.sizes, plan.events)
        stack.callback(api_server.kill)
        api_server.launch()
        sender = Sender(plan)
        stack.callback(sender.end)
        api_server.wait(plan.ready_within_seconds)
        server = _server("stowplan", folder, plan, certificates, api_server)
        stack.callback(server.kill)
        server.start(plan.ready_within_seconds)
        yield Stage(
            plan=plan,
            folder=folder,
            api_server=api_server,
            server=server,
            sender=sender,
            certificates=certificates,
            policy=folder / "policy.yaml",
        )


def _server(
    name: str, folder: Path, plan: Plan, certificates: Certificates, api_server: ApiServer
) -> Server:
    options = [
        f"--kubeconfig={api_server.kubeconfig}",
        f"--policies={folder / 'policy.yaml'}",
        *certificates.flags,
        *plan.options,
    ]
    return Server(name, folder, options, certificates.ca)
