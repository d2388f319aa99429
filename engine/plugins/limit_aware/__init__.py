"""LimitAware: keep the limits of a node's pods within a multiple of its capacity."""

from __future__ import annotations

from engine.plugins.limit_aware.plugin import PLUGIN

__all__ = ["PLUGIN"]
