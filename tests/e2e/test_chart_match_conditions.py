"""The conditions by which the API server leaves a pod alone, against what they are to say."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import msgspec
import pytest

from engine.cel import DYN, Environment, compile_program
from engine.model import api
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.pod import pod_of
from tests.e2e.chart import VALUE_SETS, of_kind, rendered
from tests.e2e.cluster import Json
from tests.webhook.admission.test_quota_without_turn import MARKS

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


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_what_exempts_pods_from_placement_does_not_exempt_them_from_quota(values: Path) -> None:
    webhooks = [
        webhook
        for configuration in rendered(values)
        if configuration["kind"] == "ValidatingWebhookConfiguration"
        for webhook in configuration["webhooks"]
        if webhook["name"] == "quota.stowplan.dev"
    ]
    request = {"operation": "CREATE", "userInfo": {"groups": ["system:authenticated"]}}
    environment = Environment(variables=dict.fromkeys(("request", "object", "oldObject"), DYN))
    for webhook in webhooks:
        assert "objectSelector" not in webhook
        assert "stowplan.dev/placement" not in json.dumps(webhook["namespaceSelector"])
        for condition, mark in product(webhook["matchConditions"], MARKS):
            given = {"request": request, "object": {"metadata": {}, **MARKS[mark]}}
            matches = compile_program(condition["expression"], environment)
            assert matches.evaluate({**given, "oldObject": None}) is True, mark


def _is_queued(manifest: Json) -> bool:
    return pod_of(msgspec.convert(manifest, api.Pod)).is_queued
