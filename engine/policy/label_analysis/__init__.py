"""Filters as requirements on node labels, which also hold for nodes that do not exist yet.

An expression is taken apart into a label predicate (`analyze`), which gives a condition on labels
for one pod (`requirements`) and a summary for its author (`label_summary`). The form in which a
condition is written on a pod does not belong here.

Only labels count. The name of a node, its taints and its state are unknown for a future node or
will have changed, and a requirement of a pod can never be taken back.
"""

from engine.policy.label_analysis.analyze import (
    NO_LABELS,
    PLUGIN_LABELS,
    FilterLabels,
    ScoreLabels,
    filter_labels,
    score_labels,
)
from engine.policy.label_analysis.label_predicate import LabelSummary

__all__ = [
    "NO_LABELS",
    "PLUGIN_LABELS",
    "FilterLabels",
    "LabelSummary",
    "ScoreLabels",
    "filter_labels",
    "score_labels",
]
