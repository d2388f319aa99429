from __future__ import annotations

import subprocess
import sys

MODULE = "tests.bench.bench_stages"


def test_a_review_is_measured_stage_by_stage() -> None:
    command = [sys.executable, "-m", MODULE, "--nodes=20", "--pods=600", "--reviews=40"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    stages = [line.rsplit(maxsplit=4)[0].strip() for line in process.stdout.splitlines()[2:]]
    assert {"decode", "filters", "scores", "ranking", "patch", "assumed"} < {*stages}
    assert stages[-2:] == ["all stages", "a whole review, unwatched"]
