"""The cluster in columns: `ClusterState` takes events, `ClusterView` is what rules read.

What belongs here: how nodes, pods, usage and quotas become columns and stay right under any order
of events. What never does: any opinion on where a pod should go.
"""

from engine.view.axis import BoolColumn, IntColumn, ResourceAxis
from engine.view.cluster_view import ALL_DOMAINS, ClusterView, Domain, Sum, counted_requests
from engine.view.dictionary import CodeBook, DictionaryColumn, dictionary_column
from engine.view.labels import (
    LabelColumn,
    TaintColumn,
    integer_label_column,
    label_column,
    taint_column,
)
from engine.view.load import LoadProfile, LoadSums
from engine.view.state import ClusterState

__all__ = [
    "ALL_DOMAINS",
    "BoolColumn",
    "ClusterState",
    "ClusterView",
    "CodeBook",
    "DictionaryColumn",
    "Domain",
    "IntColumn",
    "LabelColumn",
    "LoadProfile",
    "LoadSums",
    "ResourceAxis",
    "Sum",
    "TaintColumn",
    "counted_requests",
    "dictionary_column",
    "integer_label_column",
    "label_column",
    "taint_column",
]
