"""The encoders extension: base64."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from engine.cel.budget import Budget
from engine.cel.errors import CelError
from engine.cel.functions.regex import encode
from engine.cel.functions.registry import Overload
from engine.cel.values import BYTES, STRING


def _decode(text: str) -> bytes:
    """Return the bytes of a base64 text, whose padding may be missing."""
    padded = encode(text) + b"=" * (-len(text) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except binascii.Error:
        raise CelError(f"`{text}` is not base64") from None


def _encode(budget: Budget, value: bytes) -> str:
    budget.check_text(len(value) * 4 // 3 + 4)
    return base64.b64encode(value).decode()


FUNCTIONS: Final = (
    Overload("base64.decode", (str,), _decode, result=BYTES),
    Overload("base64.encode", (bytes,), _encode, result=STRING, budgeted=True),
)
