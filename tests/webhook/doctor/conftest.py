from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.webhook.doctor.fake_installation import FakeInstallation, fake_installation


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    """An installation without faults."""
    async with fake_installation() as found:
        yield found
