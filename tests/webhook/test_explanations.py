from __future__ import annotations

from typing import Any

from webhook.explanations import Explanations


def explanation(name: str, namespace: str = "shop") -> dict[str, Any]:
    return {"pod": {"namespace": namespace, "name": name}}


def kept(most: int, *names: str) -> Explanations:
    explanations = Explanations(most)
    for name in names:
        explanations.add(explanation(name))
    return explanations


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["pod"]["name"] for one in found]


def test_the_newest_come_first_and_the_oldest_are_dropped() -> None:
    assert names(kept(2, "a", "b", "c").latest()) == ["c", "b"]


def test_they_are_found_by_a_part_of_namespace_and_name() -> None:
    explanations = kept(9, "web-1", "db", "web-2")
    assert names(explanations.latest(pod="shop/web")) == ["web-2", "web-1"]
    assert explanations.latest(pod="other/") == []


def test_a_limit_keeps_the_newest() -> None:
    assert names(kept(9, "a", "b", "c").latest(limit=1)) == ["c"]


def test_none_are_kept_if_none_are_wanted() -> None:
    explanations = kept(0, "a")
    assert not explanations.wanted
    assert explanations.latest() == []
