"""NodeResourcesFit: what a pod requests must be free; score how full the node would be."""

from __future__ import annotations

from engine.plugins.node_resources_fit.plugin import PLUGIN

__all__ = ["PLUGIN"]
