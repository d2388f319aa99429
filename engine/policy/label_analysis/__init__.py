"""What filters say of node labels, so that it can be required of nodes that do not exist yet.

What belongs here is how an expression is taken apart (`finder`, `reads`, `claims`), and what its
parts come to: for one pod as a condition on labels (`requirements`), for an author as an outlook.
What never does is the form in which a condition is written on a pod.

Only labels count. The name of a node, its taints and its state are not known of a node to come, or
will have changed, and what is required of a pod can never be taken back.
"""

from engine.policy.label_analysis.filter_labels import PLUGIN_LABELS, FilterLabels, filter_labels
from engine.policy.label_analysis.label_summary import LabelSummary

__all__ = ["PLUGIN_LABELS", "FilterLabels", "LabelSummary", "filter_labels"]
