"""Loading of policies that a command cannot do without, also of the installed ones."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from engine.errors import Diagnostic, InvalidFileError, did_you_mean
from engine.policy import PolicySet, load_policies

_CHECKOUT: Final = Path(__file__).parents[2]
_INSTALLED: Final = Path(sysconfig.get_path("data"), "share", "stowplan")  # of a wheel
_ROOT: Final = _CHECKOUT if (_CHECKOUT / "policies").is_dir() else _INSTALLED

SCHEMA: Final = _ROOT / "docs" / "placementpolicy.schema.json"
"""The JSON schema by which editors complete and check policies."""


def shipped_policies() -> dict[str, Path]:
    """Return the folder of each policy to start from, by its name."""
    folders = sorted(_ROOT.glob("policies/*/"))
    return {folder.name: folder for folder in folders}


def located_policy(path: Path) -> Path:
    """Return a path, or the folder of the policy to start from that has this name."""
    name = str(path)
    if path.exists() or path.name != name or path.suffix:
        return path
    policies = shipped_policies()
    if name not in policies and (hint := did_you_mean(name, policies)):
        message = "neither a file nor the name of a policy to start from"
        raise InvalidFileError([Diagnostic(file=name, message=message, hint=hint)])
    return policies.get(name, path)


def located_policies(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return paths of policies, with names of policies to start from as their folders."""
    return tuple(map(located_policy, paths))


STANDARD_INPUT: Final = Path("-")
MOST_READ: Final = (1 << 20) + 1
"""Bytes: one more than a policy file may have, so that a larger one is seen to be too large."""


def load_policy_set(paths: Sequence[Path]) -> PolicySet:
    """Return the policies of files, folders and names, at least one; `-` is standard input.

    A name is that of a policy to start from, where there is no such file.
    """
    files = located_policies(path for path in paths if path != STANDARD_INPUT)
    texts = {} if len(files) == len(paths) else {"<stdin>": sys.stdin.buffer.read(MOST_READ)}
    policies = load_policies(files, texts)
    if not policies:
        raise InvalidFileError(
            [Diagnostic(file=str(path), message="holds no policy") for path in paths]
        )
    return policies
