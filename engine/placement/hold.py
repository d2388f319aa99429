"""The patch that holds a pod: our scheduling gate, why it is there, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import jsonpatch

from engine.model.hold import (
    HOLD_GATE,
    HOLD_REASONS_ANNOTATION,
    RELEASE_BY_ANNOTATION,
)
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros, date, micros
from engine.placement.affinity import Operation, graft
from engine.placement.patch import ensure_applies, read_document

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def hold_patch(
    pod: Pod,
    raw: bytes,
    *,
    reasons: str,
    now: Micros,
    seconds: int,
    after: Sequence[Operation] = (),
) -> tuple[Operation, ...]:
    """Return the operations that hold a pod; none for one that is held already.

    So patching twice equals once. What a pod says of itself is believed only as far as this hold
    could have written it: another reason, or another moment than one within the bound, is replaced.

    Args:
        pod: the model of the pod.
        raw: the same, as JSON.
        reasons: why it is held, separated by commas.
        now: the moment from which it is held.
        seconds: the bound of a hold.
        after: operations that are made on the pod before, none of them on gates or on annotations
            of a hold.

    Raises:
        PatchError: the operations do not apply to the pod.
    """
    added: dict[str, Any] = {}
    if not (pod.is_held and _is_ours(pod, reasons, now, seconds)):
        release_by = date(Micros(now + seconds * SECOND)).strftime(_FORMAT)
        annotations = {
            HOLD_REASONS_ANNOTATION: reasons,
            RELEASE_BY_ANNOTATION: release_by,
        }
        added["metadata"] = {"annotations": annotations}
    if not pod.is_held:
        added["spec"] = {"schedulingGates": [{"name": HOLD_GATE}]}
    document = read_document(raw)
    if after:
        document = jsonpatch.apply_patch(document, list(after), in_place=True)
    operations = tuple(graft(document, added, ""))
    ensure_applies(operations, document)
    return operations


def _is_ours(pod: Pod, reasons: str, now: Micros, seconds: int) -> bool:
    """Return whether the annotations of a pod are those of a hold that began a moment ago."""
    if pod.annotations.get(HOLD_REASONS_ANNOTATION) != reasons:
        return False
    try:
        text = pod.annotations.get(RELEASE_BY_ANNOTATION, "")
        release_by = micros(datetime.strptime(text, _FORMAT).replace(tzinfo=UTC))
    except ValueError:
        return False
    return now < release_by <= now + seconds * SECOND
