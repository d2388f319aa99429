"""The conditions by which the API server leaves a pod alone, against what they are to say."""

from __future__ import annotations

from itertools import product

import msgspec

from engine.cel import DYN, Environment, compile_program
from engine.model import api
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.pod import pod_of
from tests.e2e.chart import of_kind, rendered
from tests.e2e.cluster import Json

_POD_WITH = [
    {"metadata": metadata, "spec": spec}
    for metadata in (
        {},
        {"annotations": {}},
        *(
            {"annotations": {HOLD_REASONS_ANNOTATION: reasons}}
            for reasons in (
                "",
                "quota",
                "placement,quota",
                "quotas",
                "placement, quota",
                "quota,",
                ("é" * 58) + ",quota",
                ("é" * 59) + ",quota",
            )
        ),
    )
    for spec in (
        {},
        {"schedulingGates": []},
        *(
            {"schedulingGates": [{"name": name} for name in names]}
            for names in (
                [HOLD_GATE],
                ["a/b"],
                ["a/b", HOLD_GATE],
                [f"{HOLD_GATE}2"],
                [*map(str, range(15)), HOLD_GATE],
                [*map(str, range(16)), HOLD_GATE],
            )
        ),
    )
]


def test_of_updates_exactly_those_are_reviewed_that_end_a_wait_for_quota() -> None:
    manifest = of_kind(rendered(values={"hold.enabled": True}), "ValidatingWebhookConfiguration")
    (condition, *_) = manifest["webhooks"][0]["matchConditions"]
    variables = {"request": DYN, "object": DYN, "oldObject": DYN}
    matches = compile_program(condition["expression"], Environment(variables=variables))
    for old, new in product(_POD_WITH, repeat=2):
        request = {"operation": "UPDATE"}
        ends = _is_queued(old) and not _is_queued(new)
        given = {"request": request, "object": new, "oldObject": old}
        assert matches.evaluate(given) is ends, (old, new)
    creation = {"request": {"operation": "CREATE"}, "object": _POD_WITH[0], "oldObject": None}
    assert matches.evaluate(creation) is True
    resize = {"operation": "UPDATE", "subResource": "resize"}
    given = {"request": resize, "object": _POD_WITH[0], "oldObject": _POD_WITH[0]}
    assert matches.evaluate(given) is True


def _is_queued(manifest: Json) -> bool:
    return pod_of(msgspec.convert(manifest, api.Pod)).is_queued
