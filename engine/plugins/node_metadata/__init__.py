"""NodeMetadata: prefer nodes by a number or a time in one of their labels or annotations."""

from __future__ import annotations

from engine.plugins.node_metadata.plugin import PLUGIN

__all__ = ["PLUGIN"]
