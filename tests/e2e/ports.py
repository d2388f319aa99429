"""Ports of this machine for the parts of a cluster, and for the servers beside it."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

# Below the range outgoing connections take their ports from: a part that was stopped finds its own
# port free when it comes back.
_PORTS: Final = range(20_000, 32_000)

_CLAIMS: Final[list[int]] = []
"""Descriptors of the files that say whose a port is, locked for as long as this process lives."""


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, and that no other run of the tests is given.

    A port belongs to this process until it ends, whether anything listens there or not.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        if _claimed(port) and not _in_use(port):
            found.append(port)
    return found


def _claimed(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"stowplan-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        # Of the open file: this process cannot claim a port twice either.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _CLAIMS.append(file)
    return True


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
