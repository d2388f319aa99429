"""Identities of those who hold a Lease, write reservations or record Events."""

from __future__ import annotations

import socket
import uuid


def new_identity() -> str:
    """Name that no other process has, beginning with the name of its host."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
