from __future__ import annotations

from engine.cel import CelType
from engine.model import api
from engine.model.advice import Advice
from engine.model.time import Micros
from engine.policy.activation import (
    NODE_FIELDS,
    POD_FIELDS,
    node_value,
    pod_value,
    request_value,
)
from engine.view import ClusterState, ClusterView
from tests.engine.policy.worlds import GIB, NOW, node, request_of, usage, view_of


def _node(view: ClusterView, *fields: str, now: Micros = NOW) -> dict[str, object]:
    return node_value(fields or NODE_FIELDS, view, view.rows["a"], now)


def test_amounts_are_in_cores_bytes_and_units() -> None:
    spec = {
        "containers": [
            {
                "resources": {
                    "requests": {"cpu": "250m", "memory": "1Gi", "nvidia.com/gpu": 2},
                    "limits": {"cpu": "1"},
                }
            }
        ]
    }
    pod = pod_value(POD_FIELDS, request_of(spec).pod)
    assert isinstance(pod, dict)
    assert pod["requests"] == {"cpu": 0.25, "memory": float(GIB), "nvidia.com/gpu": 2.0}
    assert pod["limits"] == {"cpu": 1.0}


def test_a_pod_that_requests_nothing_requests_0_and_has_no_limit() -> None:
    pod = pod_value(POD_FIELDS, request_of({"containers": [{}]}).pod)
    assert isinstance(pod, dict)
    assert pod["requests"] == {"cpu": 0.0, "memory": 0.0}
    assert pod["limits"] == {}


def test_a_pod_has_plain_values() -> None:
    request = request_of(
        {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
            "priority": 9500,
        },
        generateName="web-",
        labels={"app": "web"},
        ownerReferences=[{"kind": "ReplicaSet", "name": "web"}],
    )
    pod = pod_value(POD_FIELDS, request.pod)
    assert isinstance(pod, dict)
    assert (pod["name"], pod["generateName"], pod["namespace"]) == ("", "web-", "shop")
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "value": "", "effect": ""}]
    assert (pod["labels"], pod["nodeSelector"]) == ({"app": "web"}, {"zone": "a"})
    assert (pod["ownerKinds"], pod["koordinatorPriorityClass"]) == (["ReplicaSet"], "koord-prod")


def test_the_object_is_what_was_sent_and_there_is_no_old_one() -> None:
    request = request_of({"hostNetwork": True}, request={"operation": "CREATE"})
    assert request_value("object", request) == {
        "metadata": {"namespace": "shop"},
        "spec": {"hostNetwork": True},
    }
    assert request_value("oldObject", request) is None
    assert request_value("request", request) == {"operation": "CREATE"}


def test_a_namespace_always_has_its_name_as_a_label() -> None:
    assert request_value("namespaceObject", request_of(namespace_labels={"team": "a"})) == {
        "metadata": {
            "name": "shop",
            "labels": {"kubernetes.io/metadata.name": "shop", "team": "a"},
        }
    }


def test_a_node_has_the_sums_of_its_pods() -> None:
    state = ClusterState()
    state.set_node(
        node(
            "a",
            labels={"zone": "z"},
            taints=(api.Taint(key="gpu", effect="NoSchedule"),),
            allocatable={"cpu": 4000, "memory": 8 * GIB, "nvidia.com/gpu": 4},
        )
    )
    containers = [{"resources": {"requests": {"cpu": "500m"}}}]
    pod = request_of({"containers": containers, "tolerations": [{"operator": "Exists"}]}).pod
    state.assume(pod, Advice(nodes=("a",), id="1"), at=NOW)
    told = _node(state.view())
    assert told["labels"] == {"zone": "z"}
    assert told["taints"] == [{"key": "gpu", "value": "", "effect": "NoSchedule"}]
    assert told["allocatable"] == {"cpu": 4.0, "memory": 8.0 * GIB, "nvidia.com/gpu": 4.0}
    assert told["requested"] == {"cpu": 0.5, "memory": 0.0, "pods": 1.0, "nvidia.com/gpu": 0.0}
    assert told["limits"] == {"cpu": 0.0, "memory": 0.0, "nvidia.com/gpu": 0.0}
    assert told["podCount"] == 1


def test_usage_is_absent_without_a_report_and_once_it_is_3_minutes_old() -> None:
    assert "usage" not in _node(view_of(node("a")))
    assert "usage" in _node(view_of(node("a"), usage("a", age=179, cpu=1)))
    assert "usage" not in _node(view_of(node("a"), usage("a", age=180, cpu=1)))


def test_only_the_requested_fields_are_computed() -> None:
    assert _node(view_of(node("a")), "name", "usage") == {"name": "a"}


def test_every_value_is_one_the_language_knows() -> None:
    view = view_of(node("a"), usage("a", cpu=1))
    request = request_of()
    of_request = [pod_value(POD_FIELDS, request.pod), request_value("namespaceObject", request)]
    values = [_node(view), *of_request]
    assert all(type(value) is dict for value in values)
    assert not any(isinstance(value, CelType) for value in values)
