"""Quotas of Koordinator for tests."""

from __future__ import annotations

from engine.model.elastic_quota import KOORDINATOR_GROUP, ElasticQuota
from engine.model.koordinator_quota import ROOT_QUOTA, TreeSettings
from engine.model.resources import Amounts


def quota(
    name: str,
    parent: str = ROOT_QUOTA,
    *,
    least: Amounts | None = None,
    most: Amounts | None = None,
    namespace: str = "koordinator-system",
    tree: TreeSettings | None = None,
) -> ElasticQuota:
    """Return a quota of a tree; with settings of its own, `parent` does not matter."""
    return ElasticQuota(
        namespace=namespace,
        name=name,
        group=KOORDINATOR_GROUP,
        min=least,
        max=most,
        used={},
        tree=tree or TreeSettings(parent=parent),
    )
