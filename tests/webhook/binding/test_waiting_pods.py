from __future__ import annotations

from engine.model import api
from engine.model.pod import Pod, pod_of
from webhook.binding.waiting_pods import WaitingPods
from webhook.placement.advice_limits import MOST_BYTES


def pod(
    name: str, *, namespace: str = "shop", uid: str = "", node: str = "", gate: str = ""
) -> Pod:
    spec = api.PodSpec(
        node_name=node, scheduling_gates=[api.PodSchedulingGate(name=gate)] if gate else None
    )
    metadata = api.ObjectMeta(namespace=namespace, name=name, uid=uid or f"uid-of-{name}")
    return pod_of(api.Pod(metadata=metadata, spec=spec))


def kept(waiting: WaitingPods, *names: str, namespace: str = "shop") -> list[str]:
    """Return the pods whose objects are kept."""
    found = {name: waiting.get(namespace, name, "") for name in names}
    return [name for name, each in found.items() if each is not None and each.raw]


def test_a_pod_is_kept_until_it_has_a_node() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web"), 1, b"{}")
    found = waiting.get("shop", "web", "uid-of-web")
    assert found is not None
    assert found.raw == b"{}"
    assert found.placement_request.request["name"] == "web"
    waiting.pod_changed(pod("web", node="node-a"), 2, b"{}")
    assert not kept(waiting, "web")
    assert len(waiting) == 0


def test_a_pod_of_the_same_name_is_another_one() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web", uid="1"), 1, b"{}")
    assert waiting.get("shop", "web", "2") is None
    waiting.pod_deleted("shop", "web")
    waiting.pod_changed(pod("web", uid="2"), 1, b"{}")
    assert waiting.get("shop", "web", "2") is not None


def test_a_pod_with_a_gate_waits_for_others_than_the_scheduler() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web", gate="example.com/later"), 1, b"{}")
    assert not kept(waiting, "web")


def test_of_a_pod_that_is_too_large_for_a_decision_only_who_it_is_is_kept() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web"), 1, b"{}")
    waiting.pod_changed(pod("web"), 2, b"x" * (MOST_BYTES + 1))
    found = waiting.get("shop", "web", "uid-of-web")
    assert found is not None
    assert (found.raw, found.pod.key) == (b"", "shop/web")
    waiting.pod_deleted("shop", "web")
    assert waiting.get("shop", "web", "") is None


def test_a_namespace_with_many_pods_loses_its_own_the_oldest_first() -> None:
    waiting = WaitingPods(most_bytes=100)
    waiting.pod_changed(pod("only", namespace="small"), 1, b"x" * 20)
    for name in ("first", "second", "third", "fourth"):
        waiting.pod_changed(pod(name), 1, b"x" * 25)  # 20 + 3 x 25 = 95, with a fourth 120
    assert kept(waiting, "first", "second", "third", "fourth") == ["second", "third", "fourth"]
    waiting.pod_changed(pod("another", namespace="small"), 1, b"x" * 20)  # 40 + 75 = 115
    assert kept(waiting, "second", "third", "fourth") == ["third", "fourth"]
    assert kept(waiting, "only", "another", namespace="small") == ["only", "another"]
    assert waiting.get("shop", "first", "uid-of-first") is not None
    assert len(waiting) == 6


def test_a_pod_that_changes_counts_once() -> None:
    waiting = WaitingPods(most_bytes=100)
    waiting.pod_changed(pod("web"), 1, b"x" * 60)
    waiting.pod_changed(pod("web"), 2, b"x" * 90)
    waiting.pod_changed(pod("api"), 1, b"x" * 10)
    assert kept(waiting, "web", "api") == ["web", "api"]
