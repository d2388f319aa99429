from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from engine.model.large_pod import decode_large_pod
from tests.bench.load.giants import giants


def test_a_pod_in_parts_is_the_pod_as_a_whole() -> None:
    for pod in giants("shop"):
        raw = msgspec.json.encode(pod)
        assert decode_large_pod(raw) == msgspec.json.decode(raw, type=api.Pod)


def test_a_pod_without_containers_has_none() -> None:
    pod = decode_large_pod(b'{"metadata": {"name": "web-1"}, "spec": {"nodeName": "a"}}')
    assert (pod.metadata.name, pod.spec.node_name) == ("web-1", "a")
    assert (pod.spec.containers, pod.spec.init_containers) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"spec": {"containers": 1}}',
        '{"spec": {"containers": [{"name": 1}]}}',
        '{"spec": {"initContainers": [{}, null]}}',
        '{"metadata": []}',
    ],
)
def test_what_is_no_pod_in_whole_is_none_in_parts(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=api.Pod)
    with pytest.raises(msgspec.ValidationError):
        decode_large_pod(text.encode())
