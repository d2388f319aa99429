"""The status of policies of the API: whether each is in force, what is wrong, what it does.

What belongs here: what a status says, and the task of the leader that writes it. What never does:
whether a policy is accepted (`webhook.placement`), where its pods were bound (`outcome`).
"""

from webhook.controllers.policy_status.controller import PolicyStatusController
from webhook.controllers.policy_status.observations import PolicyObservations

__all__ = ["PolicyObservations", "PolicyStatusController"]
