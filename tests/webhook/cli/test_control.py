from __future__ import annotations

from tests.webhook.cli.running import CLUSTER, Stowplan


def test_on_a_recorded_cluster_there_is_nothing_to_do(stowplan: Stowplan) -> None:
    ran = stowplan("control", *CLUSTER)
    assert (ran.status, ran.out) == (1, "")
    assert "--cluster: nothing is to be done on a recorded cluster" in ran.err


def test_help_says_what_the_leader_does_and_offers_no_flag_that_it_does_not_need(
    stowplan: Stowplan,
) -> None:
    ran = stowplan("control", "--help")
    words = " ".join(ran.out.replace("│", " ").split())
    assert "one of them leads, by a Lease" in words
    assert "[env var: STOWPLAN_LEASE]" in words
    assert "STOWPLAN_CONTROL]" not in words


def test_help_of_serve_says_how_to_do_both_in_one_process(stowplan: Stowplan) -> None:
    ran = stowplan("serve", "--help")
    words = " ".join(ran.out.replace("│", " ").split())
    assert "--control Do what stowplan control does in this process too" in words
    assert "[env var: STOWPLAN_CONTROL]" in words
