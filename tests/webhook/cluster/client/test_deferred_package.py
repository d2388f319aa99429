from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version


def printed_by(program: str) -> str:
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    return told.stdout.strip()


def test_the_other_clients_are_not_imported_until_somebody_wants_one() -> None:
    program = (
        "import sys, webhook.cluster.client.connection;"
        "print('kubernetes.client' in sys.modules);"
        "import kubernetes.client as it; print(it.__name__)"
    )
    assert printed_by(program).split() == ["False", "kubernetes.client"]


def test_the_package_is_whole_for_whoever_else_imports_it() -> None:
    program = (
        "import webhook.cluster.client.connection, kubernetes, kubernetes.aio;"
        "print(kubernetes.__version__, kubernetes.watch.Watch.__name__,"
        " kubernetes.aio.client.Configuration.__name__, hasattr(kubernetes, 'nothing'))"
    )
    assert printed_by(program) == f"{version('kubernetes')} Watch Configuration False"
