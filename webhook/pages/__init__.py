"""Reports as documents, and as HTML pages with plots: what readers see of typed reports; no HTTP.

What belongs here: the document of each report, which a terminal and a browser show alike; pages of
them, as HTML and figures; the document around a page, and the scripts and styles it needs. What
never does: who asks, where a report comes from, and any text of a cluster that is not escaped.
Figures are data for plotly.js; what plotly has in Python is not used.
"""

from webhook.pages import ui
from webhook.pages.decision import decision_blocks, reason_blocks, verdict_line
from webhook.pages.document import (
    Asset,
    Frame,
    Page,
    assets,
    document,
    message_page,
    sign_in_page,
    starting_page,
    update,
)
from webhook.pages.nodes import node_page, nodes_page
from webhook.pages.pod import pod_page, pods_page
from webhook.pages.policies import outcome_blocks, policies_page, policy_page
from webhook.pages.queue import is_releasing, queue_blocks, queue_page
from webhook.pages.quotas import quotas_page
from webhook.pages.repack import repack_blocks
from webhook.pages.simulation import figures_table, report_page, simulation_blocks

__all__ = [
    "Asset",
    "Frame",
    "Page",
    "assets",
    "decision_blocks",
    "document",
    "figures_table",
    "is_releasing",
    "message_page",
    "node_page",
    "nodes_page",
    "outcome_blocks",
    "pod_page",
    "pods_page",
    "policies_page",
    "policy_page",
    "queue_blocks",
    "queue_page",
    "quotas_page",
    "reason_blocks",
    "repack_blocks",
    "report_page",
    "sign_in_page",
    "simulation_blocks",
    "starting_page",
    "ui",
    "update",
    "verdict_line",
]
