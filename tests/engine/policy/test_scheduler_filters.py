from __future__ import annotations

import numpy as np

from engine.model import api
from engine.model.decision import SCHEDULER
from engine.policy import SCHEDULER_FILTERS, PolicyContext
from tests.engine.policy.worlds import NOW, node, request_of, view_of


def test_each_filter_of_the_scheduler_turns_away_what_it_would() -> None:
    view = view_of(
        node("cordoned", unschedulable=True),
        node("tainted", taints=(api.Taint(key="gpu", effect="NoSchedule"),)),
        node("elsewhere", labels={"zone": "b"}),
        node("small", labels={"zone": "a"}, allocatable={"cpu": 100, "pods": 10}),
        node("good", labels={"zone": "a"}, allocatable={"cpu": 4000, "pods": 10}),
    )
    request = request_of(
        {
            "nodeSelector": {"zone": "a"},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        }
    )
    context = PolicyContext(None, request)
    rejected: dict[str, set[str]] = {}
    for rule in SCHEDULER_FILTERS:
        outcome = rule.outcome(context, view, NOW)
        assert outcome.policy == SCHEDULER
        rejected[rule.name] = {
            view.names[row] for row in np.flatnonzero(outcome.rejects & view.valid).tolist()
        }
    assert "cordoned" in rejected["NodeUnschedulable"]
    assert rejected["TaintToleration"] == {"tainted"}
    assert rejected["NodeAffinity"] == {"cordoned", "tainted", "elsewhere"}
    assert "small" in rejected["NodeResourcesFit"]
    assert not any("good" in names for names in rejected.values())


def test_only_free_resources_change_by_themselves() -> None:
    assert [rule.name for rule in SCHEDULER_FILTERS if rule.dynamic] == ["NodeResourcesFit"]
