"""The dashboard: pages of a live cluster or a recording over HTTP, and who may read them.

What belongs here: routes, rights, live updates, and the reports that pages are made of. What never
does: how a page looks (`webhook.pages`), and where a cluster comes from. It is imported where a
dashboard is served alone: the templates of its pages take memory.
"""

from webhook.dashboard.app import build_dashboard
from webhook.dashboard.readers import (
    Anybody,
    Reader,
    Readers,
    SignIn,
    SignInError,
    TokenOfThisStart,
    TokenReaders,
)
from webhook.dashboard.routes import PREFIX
from webhook.dashboard.source import (
    ClusterSource,
    PodDecisions,
    ReadPod,
    stored_pods,
)

__all__ = [
    "PREFIX",
    "Anybody",
    "ClusterSource",
    "PodDecisions",
    "ReadPod",
    "Reader",
    "Readers",
    "SignIn",
    "SignInError",
    "TokenOfThisStart",
    "TokenReaders",
    "build_dashboard",
    "stored_pods",
]
