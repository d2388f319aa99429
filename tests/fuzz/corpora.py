"""The files that fuzzing begins with: the body of a review, a policy or an expression each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

CORPUS: Final = Path(__file__).parent / "corpus"
"""Inputs that failed once, or that show something no other one does; a folder for each target."""

REVIEWS: Final = CORPUS / "reviews"

_RECORDED: Final = Path(__file__).parents[1] / "webhook" / "reviews"


def recorded() -> list[dict[str, Any]]:
    """Return the reviews of `tests/webhook/reviews`."""
    return [json.loads(path.read_text())["review"] for path in sorted(_RECORDED.glob("*.json"))]
