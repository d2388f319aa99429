from __future__ import annotations

import subprocess
import sys

MODULE = "tests.bench.bench_lists"


def test_lists_and_a_relist_are_measured_step_by_step() -> None:
    command = [sys.executable, "-m", MODULE, "--nodes=20", "--pods=600"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    shown = process.stdout.splitlines()
    steps = {line.split()[0]: line for line in shown if " steps, the longest " in line}
    assert [*steps] == ["namespaces", "nodes", "nodemetrics", "pods", "relist"]
    assert all(line.endswith("MiB") for line in steps.values())
    assert shown[-1].startswith("a plain score of all nodes: ")
