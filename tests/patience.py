"""How long tests wait for what must come."""

from __future__ import annotations

PATIENCE_SECONDS = 120.0
"""Time after which a test says that something does not come.

Nothing is proven by it, so that it is far longer than the slowest machine takes.
"""
