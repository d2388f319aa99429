"""Loading of policies that a command cannot do without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.errors import Diagnostic, InvalidFileError
from engine.policy import PolicySet, load_policies


def load_policy_set(paths: Sequence[Path]) -> PolicySet:
    """Return the policies of files and folders, at least one.

    Raises:
        InvalidFileError: there is none, or something is wrong with them.
    """
    policies = load_policies(paths)
    if not policies:
        raise InvalidFileError(
            [Diagnostic(file=str(path), message="holds no policy") for path in paths]
        )
    return policies
