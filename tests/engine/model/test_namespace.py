from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.namespace import ResourceQuota, resource_quota_of
from engine.model.pod import Pod
from tests.builders import pod_from


def quota(hard: dict[str, str], **spec: Any) -> ResourceQuota:  # noqa: ANN401 - JSON
    wire = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard, **spec}}
    return resource_quota_of(msgspec.convert(wire, api.ResourceQuota))


def pod(resources: dict[str, Any], **spec: Any) -> Pod:  # noqa: ANN401 - JSON
    container = {"name": "c", "resources": resources}
    wire = {"metadata": {"namespace": "team"}, "spec": {"containers": [container], **spec}}
    return pod_from(wire)


LARGE = {
    "requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"},
    "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"},
}


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("cpu", 1500),
        ("requests.cpu", 1500),
        ("limits.cpu", 2000),
        ("memory", 1 << 30),
        ("limits.memory", 1 << 30),
        ("requests.nvidia.com/gpu", 2),
        ("hugepages-2Mi", 4 << 20),
        ("requests.hugepages-2Mi", 4 << 20),
        ("pods", 1),
        ("count/pods", 1),
        ("requests.ephemeral-storage", None),  # the pod says nothing of it
        ("services", None),
        ("count/jobs.batch", None),
        ("limits.nvidia.com/gpu", None),  # the API server takes no such quota
    ],
)
def test_a_pod_is_charged_by_the_names_of_the_quota(name: str, amount: int | None) -> None:
    assert quota({name: "10"}).charged(pod(LARGE).shape).get(name) == amount


def test_containers_must_name_the_cpu_and_memory_that_are_bounded() -> None:
    bounded = quota({"requests.cpu": "1", "limits.memory": "1Gi", "requests.nvidia.com/gpu": "1"})
    assert bounded.missing(pod(LARGE)) == {}
    assert bounded.missing(pod({"requests": {"cpu": "1"}})) == {"limits.memory": ["c"]}


@pytest.mark.parametrize(
    ("operator", "values", "counts"),
    [
        ("In", ["gold"], [True, False]),
        ("NotIn", ["gold"], [False, True]),
        ("Exists", [], [True, False]),
        ("DoesNotExist", [], [False, True]),
    ],
)
def test_pods_count_by_their_priority_class(
    operator: str, values: list[str], counts: list[bool]
) -> None:
    each = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    selecting = quota({"pods": "1"}, scopeSelector={"matchExpressions": [each]})
    assert selecting.is_known
    pods = [pod({}, priorityClassName="gold"), pod({})]
    assert [selecting.counts(one) for one in pods] == counts


def test_pods_count_by_their_quality_of_service() -> None:
    best_effort, other = pod({}), pod(LARGE)
    for name, counts in (("BestEffort", [True, False]), ("NotBestEffort", [False, True])):
        scoped = quota({"pods": "1"}, scopes=[name])
        assert [scoped.counts(one) for one in (best_effort, other)] == counts


def test_a_scope_that_cannot_be_told_is_not_known() -> None:
    assert not quota({"pods": "1"}, scopes=["Terminating"]).is_known


def test_an_amount_that_is_no_quantity_is_an_error() -> None:
    with pytest.raises(QuantityError):
        quota({"pods": "many"})
