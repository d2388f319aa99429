"""NodeResourceTopologyMatch: filter and score nodes by their NUMA zones."""

from __future__ import annotations

from engine.plugins.node_resource_topology_match.plugin import PLUGIN

__all__ = ["PLUGIN"]
