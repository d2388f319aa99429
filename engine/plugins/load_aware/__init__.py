"""LoadAware: keep pods off nodes that are busy by measurement, and prefer idle ones."""

from __future__ import annotations

from engine.plugins.load_aware.plugin import PLUGIN

__all__ = ["PLUGIN"]
