"""The namespaces whose pods a quota may limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from engine.model.elastic_quota import KOORDINATOR_GROUP, QuotaKey
from engine.model.koordinator_quota import BUILT_IN_QUOTAS

Reach: TypeAlias = frozenset[str] | None
"""Names of namespaces; None for all of the cluster."""


def reach_of(quotas: Iterable[QuotaKey]) -> Reach:
    """Return the namespaces in which a pod may be limited by one of some quotas.

    A quota of scheduler-plugins limits its own namespace. One of Koordinator's tree limits pods of
    any namespace, for whoever creates a pod may name it in a label. The built-in ones limit nobody.
    """
    namespaces = set[str]()
    for namespace, group, name in quotas:
        if group != KOORDINATOR_GROUP:
            namespaces.add(namespace)
        elif name not in BUILT_IN_QUOTAS:
            return None
    return frozenset(namespaces)
