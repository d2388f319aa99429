"""One process of the control plane, which can be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

READY_WITHIN_SECONDS = 120
_STOPS_WITHIN_SECONDS = 30
_POLL_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class PartError(Exception):
    """A process of the control plane ended, or did not become ready; the end of its log follows."""


def tail_of(log: Path, lines: int = 30, *, width: int | None = None, after: int = 0) -> str:
    """Return the end of a log.

    Args:
        log: a file.
        lines: the most lines of it.
        width: of each line, cut beyond that; None for whole lines.
        after: bytes at its beginning that are left out.
    """
    text = log.read_bytes()[after:].decode("utf-8", errors="replace")
    return "\n".join(line[:width] for line in text.splitlines()[-lines:])


class Part:
    """A process with a log and a way to ask whether it is ready.

    The calls block. A test that has servers in its event loop wraps them:
    `await asyncio.to_thread(control_plane.api_server.start)`.

    Args:
        name: of the part, and of its log.
        command: the program and its flags; the same each time, so that it finds its data and port.
        log: where its output goes, of every start.
        is_ready: asks it; False for any answer but a good one.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, is_ready: Callable[[], bool]
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The number of the process, None where there is none."""
        return None if self._process is None else self._process.pid

    @property
    def cpu_seconds(self) -> float:
        """CPU time that the process has used so far, in user and in kernel mode."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def launch(self) -> None:
        """Start the process, and do not wait."""
        self.kill()  # what is left of one that ended by itself
        with self.log.open("ab") as log:
            # The process ends when this end of its standard input does: with us, at the latest.
            self._process = subprocess.Popen(  # noqa: S603 (the command is ours)
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def wait(self, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Return as soon as the process is ready.

        Args:
            within_seconds: how long it may take.

        Raises:
            PartError: it ended, or did not become ready in time.
        """
        deadline = time.monotonic() + within_seconds
        while not self._is_ready():
            if not self.running:
                raise PartError(f"{self.name} ended:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise PartError(f"{self.name} did not become ready:\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def start(self, within_seconds: float = READY_WITHIN_SECONDS) -> None:
        """Start the process, if it is not running, and wait until it is ready; see `wait`."""
        if self.running:
            self.resume()
        else:
            self.launch()
        self.wait(within_seconds)

    def stop(self) -> None:
        """Ask the process to end, and wait: an API server with open watches takes its time."""
        self._end(subprocess.Popen.terminate)

    def kill(self) -> None:
        """End the process without a chance to say goodbye."""
        self._end(subprocess.Popen.kill)

    def restart(self) -> None:
        """Kill and start."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let the process hang: connections stay open, nothing is answered, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on."""
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = 30) -> str:
        """Return the end of the log."""
        return tail_of(self.log, lines) if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        how(process)
        try:
            process.wait(_STOPS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _close(process.stdin)


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        stream.close()
