"""Settings of policies: which, whose pods, and what their outcome is measured by."""

from __future__ import annotations

from pydantic import BaseModel, Field

from engine.pipeline import SYSTEM_NAMESPACES, Scope
from engine.view import DEFAULT_ASSUMED_SECONDS
from webhook.placement.live_policies import PlacementMode, WhenWorse
from webhook.settings.values import Names, Paths


class PlacementSettings(BaseModel):
    """Policies, the pods that they place, and what is counted of where those land."""

    policies: Paths = Field(
        default=(),
        description="Policy files, or folders of them; separated by colons in the environment.",
    )
    policy_resources: bool = Field(
        default=False,
        description="Take policies from the API of a live cluster too: PlacementPolicy and"
        " NamespacedPlacementPolicy. A file comes before a resource of its name.",
    )
    placement_mode: PlacementMode = Field(
        default="Enforce",
        description="Enforce: each policy acts by its own mode; Audit: all policies only report"
        " what they would do; Off: pods are not reviewed.",
    )
    scheduler_names: Names = Field(
        default=("default-scheduler",),
        description="Schedulers whose pods are advised; separated by commas in the environment.",
    )
    excluded_namespaces: Names = Field(
        default=SYSTEM_NAMESPACES,
        description="Namespaces whose pods are not reviewed; separated by commas in the"
        " environment.",
    )
    percentage_of_nodes_to_score: int = Field(
        default=0,
        ge=0,
        le=100,
        description="The same as in the configuration of the scheduler: the larger its sample of"
        " the nodes, the fewer nodes advice has to name. 0: by the number of nodes, as"
        " in the scheduler.",
    )
    assumed_seconds: int = Field(
        default=DEFAULT_ASSUMED_SECONDS,
        gt=0,
        description="Time for which an advised pod counts on its node before it is bound.",
    )
    outcome: bool = Field(
        default=True,
        description="Count where pods are bound: for pods decided at binding, their node against"
        " the scheduler's; for advised pods, whether they landed there. The leader"
        " does this.",
    )
    outcome_window_seconds: int = Field(
        default=3_600,
        ge=60,
        le=86_400,
        description="Window of the outcomes by which a policy is measured.",
    )
    outcome_least_pods: int = Field(
        default=100,
        ge=1,
        description="Least number of pods of a policy decided at binding in that window before it"
        " can be found to make things worse.",
    )
    outcome_margin: int = Field(
        default=5,
        ge=1,
        le=100,
        description="A policy makes things worse if its pods have this many points less (of 100,"
        " by its own scores) than on the nodes that the scheduler took, or if this"
        " many percent more of them are on hot nodes.",
    )
    outcome_hot_percent: int = Field(
        default=80,
        ge=1,
        le=100,
        description="Usage of CPU or memory, in percent of allocatable, above which a node is hot.",
    )
    outcome_when_worse: WhenWorse = Field(
        default="Report",
        description="What happens when a policy makes things worse. Report: an alert and an"
        " Event. Audit: also no replica acts on it until a person lifts that or"
        " changes the policy. A policy that promises something, or that denies, is"
        " only reported.",
    )
    explanations_kept: int = Field(
        default=256, ge=0, description="Number of the latest decisions that /debug/decisions shows."
    )
    reload_seconds: float = Field(
        default=5.0,
        ge=0,
        description="Interval at which policy and certificate files are checked for changes; 0:"
        " never.",
    )

    @property
    def takes_policy_resources(self) -> bool:
        """Whether policies of the API are taken."""
        return self.policy_resources and self.placement_mode != "Off"

    def scope(self) -> Scope:
        """Pods that policies place."""
        return Scope(
            scheduler_names=self.scheduler_names, excluded_namespaces=self.excluded_namespaces
        )
