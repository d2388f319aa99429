"""The cluster in columns: `ClusterState` takes events, `ClusterView` is what rules read.

What belongs here: how nodes, pods, usage and quotas become columns and stay right under any order
of events. What never does: any opinion on where a pod should go.
"""

from engine.model.domain import LOAD_DOMAINS, Domain
from engine.view.assumed import DEFAULT_ASSUMED_SECONDS
from engine.view.axis import BoolColumn, IntColumn, ResourceAxis
from engine.view.cluster_view import ClusterView
from engine.view.dictionary import CodeBook, DictionaryColumn, dictionary_column
from engine.view.images import image_column
from engine.view.labels import (
    LabelColumn,
    TaintColumn,
    integer_label_column,
    label_column,
    taint_column,
)
from engine.view.load import LoadProfile, LoadSums
from engine.view.name_hashes import hash_of, name_hashes
from engine.view.pod_sums import PodSumProfile
from engine.view.pod_transitions import NO_TRANSITIONS, PodTransitions
from engine.view.stale_reports import StalenessWindow, stale_reports
from engine.view.staleness import DOMAIN_NAMES, FRESH, Freshness
from engine.view.state import ClusterState
from engine.view.sums import Sum, counted_requests
from engine.view.tracked_sums import SumProfile
from engine.view.usage_history import USAGE_RESOURCES, USAGE_WINDOW_SECONDS, UsageHistory

__all__ = [
    "DEFAULT_ASSUMED_SECONDS",
    "DOMAIN_NAMES",
    "FRESH",
    "LOAD_DOMAINS",
    "NO_TRANSITIONS",
    "USAGE_RESOURCES",
    "USAGE_WINDOW_SECONDS",
    "BoolColumn",
    "ClusterState",
    "ClusterView",
    "CodeBook",
    "DictionaryColumn",
    "Domain",
    "Freshness",
    "IntColumn",
    "LabelColumn",
    "LoadProfile",
    "LoadSums",
    "PodSumProfile",
    "PodTransitions",
    "ResourceAxis",
    "StalenessWindow",
    "Sum",
    "SumProfile",
    "TaintColumn",
    "UsageHistory",
    "counted_requests",
    "dictionary_column",
    "hash_of",
    "image_column",
    "integer_label_column",
    "label_column",
    "name_hashes",
    "stale_reports",
    "taint_column",
]
