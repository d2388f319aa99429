from __future__ import annotations

import subprocess
import sys


def printed_by(program: str) -> str:
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    return told.stdout.strip()


def test_the_other_clients_are_not_imported() -> None:
    program = (
        "import sys, webhook.cluster.client.connection; print('kubernetes.client' in sys.modules)"
    )
    assert printed_by(program) == "False"


def test_whoever_wants_another_client_can_still_import_it() -> None:
    program = (
        "import webhook.cluster.client.connection, kubernetes.client as it; print(it.__name__)"
    )
    assert printed_by(program) == "kubernetes.client"
