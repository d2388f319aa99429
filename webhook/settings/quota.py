"""Settings of quotas: what they limit, what they share, and what follows from an exceeded one."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from engine.model.selector_text import parse_selector_text
from engine.quota import (
    DEFAULT_RESERVATION_SECONDS,
    Borrowing,
    PodAccounting,
    QuotaMode,
    QuotaRules,
    StatusCounts,
    UnlistedResources,
)
from engine.quota.queueing import QuotaCohort

QuotaRollout = Literal["All", "Labelled", "Automatic"]


class QuotaSettings(BaseModel):
    """ElasticQuota: how it is counted and enforced."""

    quota_mode: QuotaMode = Field(
        default="Enforce",
        description="What happens when an ElasticQuota is exceeded. Enforce: the pod is denied."
        " Queue: it waits for room, or is denied while nobody releases pods. Audit: a"
        " warning. Off: nothing.",
    )
    quota_rollout: QuotaRollout = Field(
        default="All",
        description="Namespaces whose pods the API server asks about. Automatic: those with a"
        " quota, kept by replicas in the first of the webhook configurations. All,"
        " Labelled: as the configuration says.",
    )
    quota_unlisted_resources: UnlistedResources = Field(
        default="Unlimited",
        description="Limit of resources that a quota's max does not name; Zero is the rule of"
        " scheduler-plugins.",
    )
    quota_count_pods: PodAccounting = Field(
        default="NonTerminal",
        description="Pods that count. NonTerminal: all that have not finished. Scheduled, a rule"
        " of scheduler-plugins: only those bound to a node, so that a burst may exceed"
        " max.",
    )
    quota_borrowing: Borrowing = Field(
        default="Off",
        description="AggregateMin, a rule of scheduler-plugins: all namespaces with quotas"
        " together are also limited to the sum of their min.",
    )
    quota_cohort: QuotaCohort = Field(
        default="Nodes",
        description="What quotas of mode Queue share and borrow from beyond min: what nodes offer"
        " (Nodes), or the sum of all min, as with scheduler-plugins (SumOfMin).",
    )
    quota_cohort_nodes: str = Field(
        default="",
        description="Label selector of the nodes that quotas share, such as"
        " `!node-role.kubernetes.io/control-plane`; all by default. Nodes that are cordoned or not"
        " ready never count.",
    )
    quota_status_counts: StatusCounts = Field(
        default="Running", description="Pods that count in `status.used` of a quota."
    )
    quota_reservation_seconds: int = Field(
        default=DEFAULT_RESERVATION_SECONDS,
        gt=60,
        description="Time for which an admitted pod holds quota until it is seen; longer than the"
        " request timeout of the API server, 60 s by default.",
    )

    @field_validator("quota_cohort_nodes")
    @classmethod
    def _is_a_selector(cls, text: str) -> str:
        parse_selector_text(text)
        return text

    @property
    def keeps_quota_namespaces(self) -> bool:
        """Whether the API server is to ask about namespaces with a quota alone."""
        return self.quota_rollout == "Automatic" and self.quota_mode != "Off"

    def quota_rules(self) -> QuotaRules:
        """Rules by which quotas are enforced."""
        return QuotaRules(
            unlisted_resources=self.quota_unlisted_resources,
            count_pods=self.quota_count_pods,
            borrowing=self.quota_borrowing,
        )
