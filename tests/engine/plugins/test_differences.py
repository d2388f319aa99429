"""The reference of plugins lists all differences from upstream, and tests show each of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pkgutil import walk_packages
from typing import Any, Final

import pytest

import engine.plugins
from engine.plugins import PLUGINS
from tests.docs import ALL_PLUGINS, differences, section
from tests.engine.plugins import (
    test_disk_io_aware,
    test_image_locality,
    test_inter_pod_affinity,
    test_limit_aware,
    test_low_risk_over_commitment,
    test_neighbours,
    test_network_overhead,
    test_node_affinity,
    test_node_resource_topology_match,
    test_node_resources_allocatable,
    test_node_resources_balanced_allocation,
    test_node_resources_fit,
    test_peaks,
    test_pod_topology_spread,
    test_resource_limit_aware,
    test_score_oracle,
    test_taint_toleration,
    test_target_load_packing,
)
from tests.engine.plugins.lib import test_trimaran
from tests.engine.plugins.load_aware import test_load_aware, test_plugin
from tests.engine.view import test_columns

_LOAD: Final = test_trimaran.test_a_provider_of_upstream_is_accepted
_NUMA: Final = test_node_resource_topology_match
_UNUSED: Final = _NUMA.test_caches_and_preemption_of_upstream_are_accepted_and_change_nothing

SHOWN_BY: Final[Mapping[str, Mapping[str, Callable[..., Any]]]] = {
    ALL_PLUGINS: {
        "Large amounts": test_node_resources_fit.test_an_absurd_request_neither_fits_nor_wraps,
        "Large pods": test_columns.test_a_pod_with_very_many_labels_is_not_counted,
        "Pods that are not bound yet": (
            test_neighbours.test_pods_that_are_thought_to_be_on_nodes_count_like_those_that_are
        ),
    },
    "DiskIOAware": {
        "Coefficients": (
            test_disk_io_aware.test_coefficients_turn_what_is_asked_for_into_the_units_of_a_driver
        ),
        "Pods that are not bound yet": (
            test_disk_io_aware.test_pods_that_are_expected_are_taken_off_until_they_are_bound
        ),
    },
    "ImageLocality": {"Sizes": test_image_locality.test_each_node_has_its_own_size_of_an_image},
    "InterPodAffinity": {
        "Selectors of namespaces": (
            test_inter_pod_affinity.test_a_selector_of_namespaces_selects_those_whose_labels_match
        ),
        "Large affinities": test_inter_pod_affinity.test_a_very_large_affinity_is_a_fault,
        "Topology keys of other pods": (
            test_inter_pod_affinity.test_of_the_labels_by_which_other_pods_keep_away_the_first_sixteen_count
        ),
    },
    "LimitAware": {
        "`strategy`": test_limit_aware.test_balanced_makes_the_share_of_limits_most_even,
    },
    "LoadAware": {
        "Keys": test_plugin.test_of_a_key_that_is_given_twice_the_last_value_counts,
        "`estimator`": test_plugin.test_any_estimator_may_be_named_and_there_is_one,
        "`strategy`": test_load_aware.test_balanced_spreads_what_is_measured,
    },
    "LoadVariationRiskBalancing": {"Source of measurements": _LOAD},
    "LowRiskOverCommitment": {
        "Steady load": (
            test_low_risk_over_commitment.test_a_load_that_hardly_varies_is_a_steady_one
        ),
        "Empty reports": (
            test_low_risk_over_commitment.test_a_pod_without_wants_and_a_node_without_metrics_get_nothing
        ),
        "Source of measurements": _LOAD,
    },
    "NetworkOverhead": {
        "Missing objects": (
            test_network_overhead.test_without_a_group_costs_or_dependencies_all_nodes_are_equal
        ),
        "Unknown nodes": test_network_overhead.test_a_pod_whose_node_is_unknown_does_not_count,
    },
    "NodeAffinity": {
        "Mistakes in preferred terms": (
            test_node_affinity.test_one_bad_preferred_term_is_a_fault_on_every_node
        ),
        "Many labels": test_node_affinity.test_a_pod_that_names_very_many_labels_is_not_evaluated,
    },
    "NodeResourceTopologyMatch": {
        "Many zones": _NUMA.test_a_node_of_very_many_zones_is_not_looked_at_in_all_combinations,
        "Devices": (
            _NUMA.test_devices_of_a_class_are_in_no_zone_of_a_node_without_a_plugin_for_them
        ),
        "`cacheResyncPeriodSeconds`": _UNUSED,
        "`cache`": _UNUSED,
        "`preemptionMode`": _UNUSED,
    },
    "NodeResourcesAllocatable": {
        "Large sums": (
            test_node_resources_allocatable.test_the_last_weight_of_a_resource_counts_and_what_a_node_lacks_is_0
        ),
    },
    "NodeResourcesBalancedAllocation": {
        "Empty lists": (
            test_node_resources_balanced_allocation.test_without_any_resource_nothing_can_be_scored
        ),
        "`kubernetesVersion`": (
            test_node_resources_balanced_allocation.test_from_kubernetes_1_36_on_the_change_counts
        ),
    },
    "NodeResourcesFit": {
        "Written args": (
            test_node_resources_fit.test_mistakes_in_the_args_are_refused_where_they_stand
        ),
        "Devices": (
            test_node_resources_fit.test_what_devices_may_provide_rejects_only_nodes_that_offer_some_of_it
        ),
        "`scoringStrategy.type`": (
            test_node_resources_fit.test_balanced_makes_the_share_of_requests_most_even
        ),
    },
    "Peaks": {
        "Unknown or full nodes": (
            test_peaks.test_a_node_of_which_nothing_is_known_or_that_is_overfilled_is_the_worst
        ),
        "Models": test_peaks.test_args_need_a_model,
        "`watcherAddress`": test_peaks.test_the_address_of_a_watcher_is_accepted_and_not_used,
    },
    "PodTopologySpread": {
        "Controllers": (
            test_score_oracle.test_pods_of_a_controller_are_spread_over_nodes_and_zones
        ),
        "Services": (
            test_score_oracle.test_pods_of_nobody_are_not_spread_and_without_zones_nodes_count_alone
        ),
        "Large constraints": (
            test_pod_topology_spread.test_what_cannot_be_judged_is_a_fault_everywhere
        ),
    },
    "ResourceLimitAware": {
        "Pods without limits": (
            test_resource_limit_aware.test_an_incoming_pod_without_limits_takes_all_that_a_node_offers
        ),
    },
    "TaintToleration": {
        "Reasons": test_taint_toleration.test_the_first_taint_that_repels_the_pod_is_the_reason,
    },
    "TargetLoadPacking": {
        "Time of pods": (
            test_target_load_packing.test_a_pod_that_the_report_cannot_know_is_missing_from_its_usage
        ),
        "`targetUtilization`": (
            test_target_load_packing.test_args_that_upstream_cannot_use_are_refused
        ),
        "Source of measurements": _LOAD,
    },
}
"""A test that fails where the difference is gone, by section of the reference and first words."""

_NONE: Final = "No difference from upstream is known."


@pytest.mark.parametrize("name", [ALL_PLUGINS, *PLUGINS])
def test_every_difference_that_is_listed_is_shown(name: str) -> None:
    assert list(differences(name)) == list(SHOWN_BY.get(name, ()))


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_of_a_source_lists_its_differences_or_says_that_none_is_known(name: str) -> None:
    has_source = "Source: " in section(name)
    assert bool(differences(name)) + (_NONE in section(name)) == has_source


@pytest.mark.parametrize("name", PLUGINS)
def test_no_difference_is_told_beside_the_list(name: str) -> None:
    prose, _, _ = section(name).partition("Differences from upstream:")
    assert not re.search(r"[Uu]pstream|Unlike", prose.replace(_NONE, ""))


_NOT_UPSTREAM: Final = re.compile(
    r"not used|[Nn]ot among upstream|there is one|refused|or Balanced|Balanced prefers"
)


@pytest.mark.parametrize("name", PLUGINS)
def test_an_arg_of_another_meaning_than_upstreams_is_a_difference(name: str) -> None:
    args = re.findall(r"^\| (`[\w.*]+`) \|.*\| (.*) \|$", section(name), re.MULTILINE)
    others = {arg for arg, meaning in args if _NOT_UPSTREAM.search(meaning)}
    assert others <= differences(name).keys()


BOUNDS: Final[Mapping[tuple[str, str], Sequence[str]]] = {
    (ALL_PLUGINS, "Large amounts"): (
        "engine.plugins.lib.arithmetic.GREATEST_PERCENT",
        "engine.plugins.limit_aware.MOST_CAPACITY",
        "engine.plugins.limit_aware.MOST_PERCENT",
        "engine.plugins.load_aware.estimation._LONGEST_WINDOW",
        "engine.view.axis.GREATEST_AMOUNT",
    ),
    (ALL_PLUGINS, "Large pods"): ("engine.model.pod.LONGEST_TRAITS",),
    ("InterPodAffinity", "Large affinities"): (
        "engine.plugins.inter_pod_affinity._LONGEST_TEXT",
        "engine.plugins.inter_pod_affinity._MOST_PARTS",
    ),
    ("InterPodAffinity", "Topology keys of other pods"): ("engine.view.columns._MOST_KEYS",),
    ("NodeAffinity", "Many labels"): ("engine.plugins.lib.constraints._MOST_KEYS",),
    ("NodeResourceTopologyMatch", "Many zones"): (
        "engine.plugins.node_resource_topology_match._MOST_COMBINATIONS",
    ),
    ("PodTopologySpread", "Large constraints"): (
        "engine.plugins.lib.constraints._LONGEST_TEXT",
        "engine.plugins.lib.constraints._MOST_PARTS",
    ),
}
"""The constants of the code that bound what is looked at, by the difference that says so."""

UPSTREAMS: Final = frozenset(
    {
        "engine.plugins.image_locality._MOST_PER_IMAGE",
        "engine.plugins.lib.arithmetic._GREATEST_INT",  # int64
        "engine.plugins.node_resources_fit.GREATEST_SHAPE_SCORE",
    }
)
"""Bounds that upstream has too."""

OF_NO_ANSWER: Final = frozenset(
    {
        "engine.model.pod._MOST_ANNOTATION_BYTES",  # no plugin reads it
        "engine.plugins.low_risk_over_commitment._MOST_TERMS",  # of a series that has converged
        "engine.plugins.node_affinity._MOST_LABELS_TOLD",
        "engine.plugins.node_affinity._MOST_TOLD",
        "engine.plugins.pod_topology_spread._LONGEST_TABLE",  # of results that are computed ahead
        "engine.plugins.pod_topology_spread._MOST_TOLD",
        "engine.plugins.taint_toleration._MOST_TOLD",
    }
)
"""Bounds that change no answer, but how it is computed or told."""

_MODULES: Final = (
    "engine.model.pod",
    "engine.view.axis",
    "engine.view.columns",
    *(
        each.name
        for each in walk_packages(engine.plugins.__path__, "engine.plugins.")
        if not each.ispkg
    ),
)
_BOUND: Final = re.compile(r"^(_?(?:MOST|LONGEST|GREATEST)_[A-Z_]+)\b[^=\n]* = ", re.MULTILINE)


def test_every_bound_of_what_plugins_look_at_is_a_difference_or_upstreams() -> None:
    found = {
        f"{name}.{constant}"
        for name in _MODULES
        for constant in _BOUND.findall(inspect.getsource(import_module(name)))
    }
    named = chain.from_iterable(BOUNDS.values())
    assert found == {*named, *UPSTREAMS, *OF_NO_ANSWER}
    for of, what in BOUNDS:
        assert what in differences(of)
