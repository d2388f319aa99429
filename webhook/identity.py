"""Identity of this process: its version, and a name that no other process has."""

from __future__ import annotations

import socket
import uuid
from typing import Final

VERSION: Final = "0.1.0"
"""As in `pyproject.toml`: to ask the installation for it takes as long as all other imports."""


def new_identity() -> str:
    """Return a name for Leases, reservations and Events, beginning with the name of the host."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
