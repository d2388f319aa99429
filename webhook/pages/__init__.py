"""HTML pages and their plots: what typed reports look like in a browser; no HTTP.

What belongs here: a page per report, as a `Page` of HTML and figures, the document around it, and
the scripts and styles it needs. What never does: who asks, where a report comes from, and any text
of a cluster that is not escaped. Figures are data for plotly.js; what plotly has in Python is
not used.
"""

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
from webhook.pages.policies import policies_page, policy_page
from webhook.pages.quotas import queue_page, quotas_page
from webhook.pages.report import report_page

__all__ = [
    "Asset",
    "Frame",
    "Page",
    "assets",
    "document",
    "message_page",
    "node_page",
    "nodes_page",
    "pod_page",
    "pods_page",
    "policies_page",
    "policy_page",
    "queue_page",
    "quotas_page",
    "report_page",
    "sign_in_page",
    "starting_page",
    "update",
]
