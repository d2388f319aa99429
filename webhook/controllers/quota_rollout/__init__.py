"""The namespaces in which the API server asks about quota: those with one, and no others.

Belongs here: the list of namespaces in our own ValidatingWebhookConfiguration, its additions by
every replica before a new quota is stored, its removals by the leader long after one is gone, and
how it is known that API servers go by it. Never: what a quota allows.

    a quota is to be created -> its namespace is listed -> every API server has taken that up
        -> the quota is stored
    a quota is gone -> the leader announces that it will narrow the list -> whatever creation was
        under way by then has ended -> what quotas there are now is listed, and what was added since

INVARIANT: a namespace is not removed unless its removal was announced longer ago than any request
lasts. So whoever creates a quota and finds its namespace listed, and no removal announced, can rely
on it; and where one is announced, the namespace is noted beside it as one to be kept.
"""

from webhook.controllers.quota_rollout.api_servers import ApiServers
from webhook.controllers.quota_rollout.configuration import RolloutConfiguration, RolloutError
from webhook.controllers.quota_rollout.controller import (
    QuotaCoverage,
    QuotaRolloutController,
    stored_reach,
)

__all__ = [
    "ApiServers",
    "QuotaCoverage",
    "QuotaRolloutController",
    "RolloutConfiguration",
    "RolloutError",
    "stored_reach",
]
