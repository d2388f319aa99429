from __future__ import annotations

import pytest

from engine.report import NodeNames

EKS = ("ip-10-0-1-23.eu-central-1.compute.internal", "ip-10-0-2-7.eu-central-1.compute.internal")


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        (EKS, ".eu-central-1.compute.internal"),
        ((*EKS, "node1"), ""),
        (EKS[:1], ""),  # of one node nothing tells name from suffix
        (("a.internal", "b.internal"), ".internal"),
        (("a.lan", "b.lan"), ""),  # 4 characters are not worth a sentence
        (("gke-pool-1-x1z", "gke-pool-1-y1z"), ""),
        ((), ""),
    ],
)
def test_the_suffix_is_what_all_names_share_from_a_dot_on(
    names: tuple[str, ...], suffix: str
) -> None:
    assert NodeNames.of(names).suffix == suffix


def test_names_are_short_alone_and_in_texts() -> None:
    names = NodeNames.of(EKS)
    assert names.short(EKS[0]) == "ip-10-0-1-23"
    assert names.in_text(f"best {EKS[0]}, {EKS[1]}.") == "best ip-10-0-1-23, ip-10-0-2-7."
    assert names.in_text(f"{EKS[0]}-added-1") == f"{EKS[0]}-added-1"  # another name
    assert NodeNames().in_text("node1") == "node1"
