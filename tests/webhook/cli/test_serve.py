from __future__ import annotations

import signal
import ssl
import urllib.request
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import CLUSTER, POLICIES, Stowplan, process

LOCALLY = ("--host", "127.0.0.1", "--port", "0", "--metrics-port", "0")


def test_serve_says_whom_to_trust_answers_and_ends_by_ctrl_c() -> None:
    with process("serve", *CLUSTER, *POLICIES, *LOCALLY) as running:
        assert running.stdout is not None
        greeting: list[str] = []
        while not greeting or "curl --cacert" not in greeting[-1]:
            greeting.append(running.stdout.readline())
            assert greeting[-1], running.communicate()
        authority = "".join(greeting)
        authority = authority[authority.index("-----BEGIN") : authority.index("save it")]
        url = greeting[-1].split()[-1]
        trust = ssl.create_default_context(cadata=authority)
        with urllib.request.urlopen(url, context=trust, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - https
            assert url.endswith("/readyz")
            assert answer.status == 200
        running.send_signal(signal.SIGINT)
        _, log = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 0
    assert "Traceback" not in log


def test_without_a_cluster_it_says_how_to_name_one(stowplan: Stowplan, tmp_path: Path) -> None:
    ran = stowplan("serve", "--kubeconfig", tmp_path / "config")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        f"there is no kubeconfig `{tmp_path / 'config'}`\n"
        "hint: name another with `--kubeconfig`, or a recorded cluster with `--cluster`\n"
    )


def test_a_setting_that_cannot_be_is_named_by_its_flag(stowplan: Stowplan) -> None:
    ran = stowplan("serve", *CLUSTER, "--port", "99999")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("--port: must be at most 65535, not `99999`")


def test_a_bad_policy_is_told_with_its_place(stowplan: Stowplan) -> None:
    ran = stowplan("serve", *CLUSTER, "--policies", CLUSTER[1])
    assert (ran.status, ran.out) == (3, "")
    assert f"{CLUSTER[1]}:" in ran.err


def test_help_names_flags_variables_and_defaults(stowplan: Stowplan) -> None:
    ran = stowplan("serve", "--help")
    words = " ".join(ran.out.replace("│", " ").split())
    assert "--port INT Port of the webhook; 0 takes a free one. [env var: STOWPLAN_PORT]" in words
    assert "[default: kube-system, kube-public, kube-node-lease]" in words
    assert "[default: None]" not in words


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
