"""The targets that take a version of Kubernetes, with programs that tell how they were run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.build import MINOR_VERSION

ROOT = Path(__file__).parent.parent
TELLS = f"#!/bin/sh\necho \"$(basename $0) $2 $3 of '${MINOR_VERSION}'\"\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with what the targets run; each program prints its arguments."""
    for name in ("python", "pytest"):
        (tmp_path / name).write_text(TELLS, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def _made(programs: Path, *arguments: str, **environment: str) -> list[str]:
    """Return what a target prints in an environment that says no other version."""
    said = {MINOR_VERSION, "KUBERNETES", "MAKEFLAGS", "MAKELEVEL"}  # `make test` may run this
    inherited = {name: value for name, value in os.environ.items() if name not in said}
    made = subprocess.run(  # noqa: S603 - nothing but the programs above
        ["make", "-s", f"BIN={programs}", f"READY={programs}/python", *arguments],  # noqa: S607
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "environment", "version"),
    [
        ([], {}, ""),
        (["KUBERNETES=1.35"], {}, "1.35"),
        ([], {"KUBERNETES": "1.35"}, "1.35"),
        ([], {MINOR_VERSION: "1.35"}, "1.35"),
        (["KUBERNETES=1.34"], {MINOR_VERSION: "1.35"}, "1.34"),
    ],
)
def test_the_control_plane_is_built_and_run_in_the_version_that_is_asked_for(
    programs: Path, arguments: list[str], environment: dict[str, str], version: str
) -> None:
    built, run = _made(programs, "e2e", *arguments, **environment)
    assert built == f"python tests.e2e.build  of '{version}'"
    assert run == f"pytest --numprocesses 3 of '{version}'"


def test_the_matrix_takes_several_versions(programs: Path) -> None:
    (run,) = _made(programs, "matrix", "KUBERNETES=1.34 1.35")
    assert run.startswith("python tests.e2e.matrix 1.34")
