from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from webhook.placement.advice_limits import beyond_limits

_encode, _pod = msgspec.json.encode, msgspec.json.Decoder(api.Pod).decode


def containers(count: int) -> object:
    return {"containers": [{"name": "c"}] * count}


def amounts(count: int) -> object:
    requests = {f"example.com/r{number}": "1" for number in range(count - 2)}
    resources = {"requests": requests, "limits": {"cpu": "1"}}
    return {"containers": [{"resources": resources}], "overhead": {"cpu": "1"}}


def required(terms: list[object]) -> object:
    selector = {"nodeSelectorTerms": terms}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return {"affinity": {"nodeAffinity": affinity}}


def preferred(count: int) -> object:
    terms = [{"weight": 1, "preference": {}}] * count
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": affinity}}


def expressions(count: int, values: int = 0) -> object:
    requirement = {"key": "k", "operator": "In", "values": ["v"] * values}
    return required([{"matchExpressions": [requirement] * count}])


@pytest.mark.parametrize(
    ("allowed", "beyond", "reason"),
    [
        (containers(100), containers(101), "more than 100 containers"),
        (amounts(400), amounts(401), "more than 400 amounts of resources"),
        (required([{}] * 50), required([{}] * 51), "more than 50 node selector terms"),
        (preferred(50), preferred(51), "more than 50 node selector terms"),
        (expressions(250), expressions(251), "more than 250 node selector requirements"),
        (
            {"nodeSelector": {str(number): "" for number in range(250)}},
            {"nodeSelector": {str(number): "" for number in range(251)}},
            "more than 250 node selector requirements",
        ),
        (expressions(2, 1_000), expressions(3, 1_000), "more than 2000 node selector values"),
        ({"tolerations": [{}] * 500}, {"tolerations": [{}] * 501}, "more than 500 tolerations"),
    ],
)
def test_a_pod_gets_advice_up_to_each_limit(allowed: object, beyond: object, reason: str) -> None:
    assert beyond_limits(_pod(_encode({"spec": allowed}))) == ""
    assert reason in beyond_limits(_pod(_encode({"spec": beyond})))


def test_statuses_that_a_creator_made_up_count_too() -> None:
    status = {"containerStatuses": [{"name": "c"}] * 60, "initContainerStatuses": [{}] * 41}
    assert beyond_limits(_pod(_encode({"status": status}))) == "more than 100 container statuses"


def test_an_ordinary_pod_is_within_the_limits() -> None:
    assert beyond_limits(_pod(b"{}")) == ""
    assert beyond_limits(_pod(_encode({"spec": {"containers": None, "affinity": {}}}))) == ""
