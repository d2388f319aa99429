"""HTML pages and their plots: what typed reports look like in a browser; no HTTP.

What belongs here: a page per report, as a `Page` of HTML and figures, the document around it, and
the scripts and styles it needs. What never does: who asks, where a report comes from, and any text
of a cluster that is not escaped. Figures are data for plotly.js; what plotly has in Python is
not used.
"""

from webhook.pages.assets import Asset, assets
from webhook.pages.document import Frame, document, update
from webhook.pages.messages import message_page, sign_in_page, starting_page
from webhook.pages.node import node_page
from webhook.pages.nodes import nodes_page
from webhook.pages.page import Page
from webhook.pages.pod import pod_page, pods_page
from webhook.pages.policies import policies_page
from webhook.pages.policy import policy_page
from webhook.pages.queue import queue_page
from webhook.pages.quotas import quotas_page
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
