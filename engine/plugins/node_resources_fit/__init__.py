"""NodeResourcesFit: whether what a pod requests is free, and how full a node would be with it."""

from __future__ import annotations

from engine.plugins.node_resources_fit.plugin import PLUGIN

__all__ = ["PLUGIN"]
