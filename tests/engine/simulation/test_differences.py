"""The page of simulations lists all differences from the scheduler, and tests show each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from engine.policy import SCHEDULER_FILTERS, SCHEDULER_WEIGHTS
from tests.engine.plugins import (
    test_image_locality,
    test_inter_pod_affinity,
    test_node_affinity,
    test_node_resources_fit,
    test_score_oracle,
    test_taint_toleration,
)
from tests.engine.simulation import test_scheduler, test_what_if

_PAGE: Final = Path(__file__).parents[3] / "docs" / "simulate.md"

DEFAULT_PLUGINS: Final = frozenset(
    {
        *("DefaultBinder", "DefaultPreemption", "DynamicResources", "GangScheduling"),
        *("ImageLocality", "InterPodAffinity", "NodeAffinity", "NodeDeclaredFeatures", "NodeName"),
        *("NodePorts", "NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeUnschedulable"),
        *("NodeVolumeLimits", "PodGroupPodsCount", "PodTopologySpread", "PrioritySort"),
        *("SchedulingGates", "TaintToleration", "TopologyPlacementGenerator", "VolumeBinding"),
        *("VolumeRestrictions", "VolumeZone"),
    }
)
"""Plugins of kube-scheduler 1.36.3, those of feature gates too.

Source: pkg/scheduler/framework/plugins/names/names.go.
"""

OF_NO_NODE: Final = frozenset({"DefaultBinder", "NodeName", "PrioritySort", "SchedulingGates"})
"""Plugins that say nothing of which nodes suit a pod without one."""


def test_every_plugin_of_the_scheduler_is_modelled_or_a_difference() -> None:
    modelled = {*(rule.name for rule in SCHEDULER_FILTERS), *SCHEDULER_WEIGHTS}
    listed = DEFAULT_PLUGINS & set(re.findall(r"\w+", " ".join(_differences())))
    assert modelled | listed | OF_NO_NODE == DEFAULT_PLUGINS
    assert not modelled & listed


_NOT_MODELLED: Final = test_every_plugin_of_the_scheduler_is_modelled_or_a_difference
_CLAIMS: Final = test_scheduler.test_claims_of_volumes_and_devices_keep_a_pod_off_no_node

SHOWN_BY: Final[Mapping[str, Callable[..., Any]]] = {
    "volumes": _CLAIMS,
    "devices": _CLAIMS,
    "an extended resource of devices": (
        test_node_resources_fit.test_what_devices_may_provide_rejects_only_nodes_that_offer_some_of_it
    ),
    "NodeDeclaredFeatures": _NOT_MODELLED,
    "gangs": _NOT_MODELLED,
    "DefaultPreemption": test_what_if.test_others_of_lower_priority_are_evicted,
    "nominated pods": (
        test_scheduler.test_pods_count_for_all_pods_where_we_nominated_them_and_for_none_where_the_scheduler_did
    ),
    "OpportunisticBatching": test_scheduler.test_pods_of_a_template_have_rankings_of_their_own,
    "default spread": (
        test_score_oracle.test_pods_of_nobody_are_not_spread_and_without_zones_nodes_count_alone
    ),
    "`namespaceSelector` with NotIn or DoesNotExist, of pod affinity": (
        test_inter_pod_affinity.test_a_selector_of_namespaces_selects_those_whose_labels_match
    ),
    "a preferred term with a mistake": (
        test_node_affinity.test_one_bad_preferred_term_is_a_fault_on_every_node
    ),
    "an image of one name in several sizes": (
        test_image_locality.test_each_node_has_its_own_size_of_an_image
    ),
    "the reason of an untolerated taint": (
        test_taint_toleration.test_the_first_taint_that_repels_the_pod_is_the_reason
    ),
    "extenders, and other profiles": _NOT_MODELLED,
}
"""A test that fails where the difference is gone, by what differs, up to a colon."""


def test_every_difference_that_is_listed_is_shown() -> None:
    assert [what.partition(":")[0] for what in _differences()] == list(SHOWN_BY)


def _differences() -> list[str]:
    """Return the first column of the page's table."""
    table = _PAGE.read_text(encoding="utf-8").partition("| what | kube-scheduler 1.36.3 | here |")[
        2
    ]
    rows = table.partition("\n\n")[0].strip().splitlines()[1:]
    return [row.split(" | ")[0].removeprefix("| ") for row in rows]
