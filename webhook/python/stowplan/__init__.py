"""The Python interface of stowplan: a decision about a pod on a recorded cluster, with its reasons.

What is exported here is kept: a change that breaks a caller is in the changelog. Belongs here: a
few functions over plain manifests and files, in the words of the command line. Never: a rule, or an
answer that `stowplan explain` would give differently. The packages `engine` and `webhook` may
change with any version.

In the repository it lies below `webhook`, in a wheel beside it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stowplan.api import (
        DecisionReport,
        InvalidFileError,
        PolicySet,
        Recording,
        StowplanError,
        Verdict,
        __version__,
        decide,
        load_cluster,
        load_policies,
        read_pod,
    )

__all__ = [
    "DecisionReport",
    "InvalidFileError",
    "PolicySet",
    "Recording",
    "StowplanError",
    "Verdict",
    "__version__",
    "decide",
    "load_cluster",
    "load_policies",
    "read_pod",
]


def __getattr__(name: str) -> object:
    """Import the interface once something of it is asked for: the command line starts here, too."""
    if name not in __all__:
        raise AttributeError(f"module `{__name__}` has no `{name}`")
    return getattr(import_module("stowplan.api"), name)
