"""Loading of policies that a command cannot do without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from engine.errors import Diagnostic, InvalidFileError
from engine.policy import PolicySet, load_policies
from webhook.cli.shipped_files import located_policies

STANDARD_INPUT: Final = Path("-")
MOST_READ: Final = (1 << 20) + 1
"""Bytes: one more than a policy file may have, so that a larger one is seen to be too large."""


def load_policy_set(paths: Sequence[Path]) -> PolicySet:
    """Return the policies of files, folders and names, at least one; `-` is standard input.

    A name is that of a policy to start from, where there is no such file.

    Raises:
        InvalidFileError: there is none, or something is wrong with them.
    """
    files = located_policies(path for path in paths if path != STANDARD_INPUT)
    texts = {} if len(files) == len(paths) else {"<stdin>": sys.stdin.buffer.read(MOST_READ)}
    policies = load_policies(files, texts)
    if not policies:
        raise InvalidFileError(
            [Diagnostic(file=str(path), message="holds no policy") for path in paths]
        )
    return policies
