"""The cluster in columns: `ClusterState` takes events, rules read a `ClusterView`.

Here nodes, pods, usage and quotas become columns that stay right under any order of events. Nothing
here prefers one node to another, and no plugin is known: sums that only some rules need are kept by
their `PodSumProfile`. Inside, `PodAccounting` counts pods in `NodeRows`, a `SnapshotStore` copies
all on write, and a `Memo` remembers columns between decisions.
"""

from engine.model.kinds import LOAD_DOMAINS, Domain
from engine.view.assumed import DEFAULT_ASSUMED_SECONDS
from engine.view.axis import GREATEST_AMOUNT, BoolColumn, IntColumn, ResourceAxis, capped, extremes
from engine.view.cluster_view import ClusterView, RowWise
from engine.view.columns import (
    LabelColumn,
    TaintColumn,
    annotation_column,
    attraction,
    hash_of,
    image_column,
    integer_label_column,
    is_device_resource,
    label_column,
    left_to_devices,
    name_hashes,
    namespaces_matching,
    node_label_keys,
    pods_matching,
    pods_not_evictable,
    pods_using,
    repelling_pods,
    taint_column,
)
from engine.view.dictionary import MISSING, CodeBook, DictionaryColumn
from engine.view.pod_accounting import NO_TRANSITIONS, PodSumProfile, PodTransitions
from engine.view.pod_table import NO_ROW, PodEntry
from engine.view.rows import Sum, counted_requests, quota_requests
from engine.view.staleness import DOMAIN_NAMES, FRESH, Freshness, StalenessWindow, stale_reports
from engine.view.state import AssumedPod, ClusterState
from engine.view.trait_book import PodQuery
from engine.view.usage_history import USAGE_RESOURCES, USAGE_WINDOW_SECONDS, UsageHistory
from engine.view.what_if import WhatIf

__all__ = [
    "DEFAULT_ASSUMED_SECONDS",
    "DOMAIN_NAMES",
    "FRESH",
    "GREATEST_AMOUNT",
    "LOAD_DOMAINS",
    "MISSING",
    "NO_ROW",
    "NO_TRANSITIONS",
    "USAGE_RESOURCES",
    "USAGE_WINDOW_SECONDS",
    "AssumedPod",
    "BoolColumn",
    "ClusterState",
    "ClusterView",
    "CodeBook",
    "DictionaryColumn",
    "Domain",
    "Freshness",
    "IntColumn",
    "LabelColumn",
    "PodEntry",
    "PodQuery",
    "PodSumProfile",
    "PodTransitions",
    "ResourceAxis",
    "RowWise",
    "StalenessWindow",
    "Sum",
    "TaintColumn",
    "UsageHistory",
    "WhatIf",
    "annotation_column",
    "attraction",
    "capped",
    "counted_requests",
    "extremes",
    "hash_of",
    "image_column",
    "integer_label_column",
    "is_device_resource",
    "label_column",
    "left_to_devices",
    "name_hashes",
    "namespaces_matching",
    "node_label_keys",
    "pods_matching",
    "pods_not_evictable",
    "pods_using",
    "quota_requests",
    "repelling_pods",
    "stale_reports",
    "taint_column",
]
