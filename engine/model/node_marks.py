"""Names of the marks that the leader keeps on nodes: a soft taint, and a label for each policy.

A mark is what we say of a node, never what rules may learn of it: the taint is no part of
`Node.taints`, or a rule that counts taints would keep a mark alive that it caused.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

AVOID_TAINT: Final = "stowplan.dev/avoid"
"""Key of the taint, of effect PreferNoSchedule: any other effect is not ours."""

MARK_VALUE: Final = "true"
"""The value of a label that marks a node; its presence counts."""

_LABEL_PREFIX: Final = "avoid.stowplan.dev/"
_LONGEST_NAME = 63  # of a label, without its prefix
_DIGEST_BYTES = 6


def mark_label(policy: str) -> str:
    """Return the key of the label that marks a node for the pods of a policy.

    The name of a policy may be longer than that of a label: such a name is cut, and a digest of it
    keeps the keys of two policies apart.
    """
    if len(policy) <= _LONGEST_NAME:
        return f"{_LABEL_PREFIX}{policy}"
    digest = blake2b(policy.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{_LABEL_PREFIX}{policy[: _LONGEST_NAME - len(digest) - 1]}-{digest}"


def is_mark_label(key: str) -> bool:
    """Return whether a label is a mark of ours, also of a policy that is gone."""
    return key.startswith(_LABEL_PREFIX)
