from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.webhook.cli.running import CLUSTER, POD, POLICIES, ROOT, process

MORE_THAN_A_PIPE_HOLDS = 1 << 20
EXPLAIN = ("explain", POD, *CLUSTER, *POLICIES)

DURING_IMPORT = """
import signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from webhook.cli import main
main()
"""
DURING_SHUTDOWN = """
import atexit, signal
from webhook.cli import main
atexit.register(signal.raise_signal, signal.SIGINT)
main()
"""
DURING_FINALIZER = """
import signal
from webhook.cli.entry_point import interruptible

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

with interruptible():
    Finalized()
"""


@pytest.mark.parametrize(
    "code",
    [
        *(
            DURING_IMPORT.format(module=module)
            for module in ("webhook.cli.app", "cyclopts", "numpy", "webhook.cli.explain")
        ),
        DURING_SHUTDOWN,
        DURING_FINALIZER,
    ],
    ids=["our import", "first import", "C extension", "command", "shutdown", "finalizer"],
)
def test_ctrl_c_ends_the_process_at_any_moment(code: str) -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", code, *EXPLAIN], cwd=ROOT, check=False, capture_output=True
    )
    assert (ran.returncode, ran.stderr) == (130, b"")


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    with process("explain", "-", *CLUSTER, *POLICIES) as running:
        assert running.stdin is not None
        running.stdin.write(" " * MORE_THAN_A_PIPE_HOLDS)  # returns when it is being read
        running.send_signal(signal.SIGINT)
        assert running.communicate() == ("", "")
    assert running.returncode == 130
