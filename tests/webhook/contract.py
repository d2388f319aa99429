"""What every answer to a review must be, whatever it says.

Source: Kubernetes, apiserver/pkg/admission/plugin/webhook/request/admissionreview.go
(VerifyAdmissionResponse) and the limits on warnings and audit annotations.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from typing import Any

import jsonpatch

_AUDIT_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def checked_answer(review: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the response inside an answer, after checking all that the API server checks."""
    assert (answer["apiVersion"], answer["kind"]) == (review["apiVersion"], review["kind"])
    response: dict[str, Any] = answer["response"]
    assert response["uid"] == review["request"]["uid"]
    assert isinstance(response["allowed"], bool)
    assert ("patch" in response) == ("patchType" in response)
    if "patch" in response:
        assert response["allowed"]
        assert response["patchType"] == "JSONPatch"
    if not response["allowed"]:
        assert set(response["status"]) == {"code", "reason", "message"}
        assert response["status"]["message"]
    warnings = response.get("warnings", [])
    assert all(warning.isprintable() and len(warning) <= 256 for warning in warnings)
    assert sum(map(len, warnings)) <= 4096
    for key, value in response.get("auditAnnotations", {}).items():
        assert _AUDIT_KEY.fullmatch(key)
        assert isinstance(value, str)
    return response


def patched(review: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """Return the review as it would be if its object came again, patched; it must apply."""
    operations = json.loads(base64.b64decode(response["patch"], validate=True))
    again = copy.deepcopy(review)
    again["request"]["object"] = jsonpatch.apply_patch(again["request"]["object"], operations)
    return again


def holds(after: object, before: object) -> bool:
    """Return whether all of `before` is still in `after`: maps keep keys, lists keep items.

    An item of a list may have grown in the same place, as a node selector term does; an empty
    value counts for nothing.
    """
    if before in (None, {}, []):
        return True
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            key in after and holds(after[key], value) for key, value in before.items()
        )
    if isinstance(before, list):
        return (
            isinstance(after, list)
            and len(after) >= len(before)
            and all(holds(new, old) for new, old in zip(after, before, strict=False))
        )
    return after == before
