from __future__ import annotations

from engine.model import api
from tests.webhook.cluster.snapshot.kinds import KINDS_BY_NAME
from webhook.cluster.snapshot.record import redact

POD = KINDS_BY_NAME["", "Pod"]
POD_ANNOTATIONS = POD.snapshot_annotations or frozenset()
COPY = "kubectl.kubernetes.io/last-applied-configuration"


def test_of_a_pod_only_the_annotations_that_count_are_kept() -> None:
    texts = dict.fromkeys([*POD_ANNOTATIONS, COPY, "note"], "1")
    pod = redact(POD, api.Pod(metadata=api.ObjectMeta(name="web", annotations=texts)))
    assert isinstance(pod, api.Pod)
    assert set(pod.metadata.annotations or ()) == POD_ANNOTATIONS


def test_of_a_node_all_annotations_are_kept_but_copies_and_command_lines() -> None:
    texts = dict.fromkeys([COPY, "k3s.io/node-args", "k3s.io/node-env", "rack"], "1")
    node = redact(
        KINDS_BY_NAME["", "Node"],
        api.Node(metadata=api.ObjectMeta(name="node1", annotations=texts)),
    )
    assert isinstance(node, api.Node)
    assert node.metadata.annotations == {"rack": "1"}


def test_of_a_report_only_the_name_and_the_figures_are_kept() -> None:
    meta = api.ObjectMeta(name="node1", labels={"zone": "a"}, uid="u")
    report = api.NodeMetric(metadata=meta, status=api.NodeMetricStatus(pods_metric=[]))
    assert redact(KINDS_BY_NAME["slo.koordinator.sh", "NodeMetric"], report) == api.NodeMetric(
        metadata=api.ObjectMeta(name="node1"), status=report.status
    )
