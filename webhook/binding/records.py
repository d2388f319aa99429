"""What was decided at bindings, until the pods are seen bound and somebody counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.outcome import PolicyLanding

_MOST: Final = 4_096  # of some 500 bytes; a binding is seen within a moment


class BindingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A binding that was decided.

    Attributes:
        uid: of the pod.
        node: the node that it goes to.
        landings: where it lands, as each policy sees it.
    """

    uid: str
    node: str
    landings: Sequence[PolicyLanding]


class BindingRecords:
    """The latest records, each until it is taken; the oldest ones are forgotten."""

    def __init__(self) -> None:
        self._records: dict[str, BindingRecord] = {}  # by `namespace/name`, oldest first

    def __len__(self) -> int:
        return len(self._records)

    def put(self, key: str, record: BindingRecord) -> None:
        """Keep the record of a binding that is on its way; it replaces that of an earlier try."""
        self._records.pop(key, None)
        self._records[key] = record
        if len(self._records) > _MOST:
            del self._records[next(iter(self._records))]

    def take(self, key: str, uid: str, node: str) -> BindingRecord | None:
        """Return the record of a pod that is bound, once.

        None where it was not decided at its binding, or is bound to another node than was answered.

        Args:
            key: `namespace/name`.
            uid: of the pod.
            node: that it is bound to.
        """
        record = self._records.pop(key, None)
        if record is None or (record.uid, record.node) != (uid, node):
            return None
        return record
