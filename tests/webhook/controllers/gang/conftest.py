from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.webhook.controllers.release.controller_world import World, running_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Three nodes, each with room for one member."""
    async with running_world(tmp_path) as made:
        for name in ("a", "b", "c"):
            made.node(name)
        yield made
