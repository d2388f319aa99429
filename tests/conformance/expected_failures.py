"""Cases that are known to be wrong, each with the reason. They run, and must keep failing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED_FAILURES: Mapping[tuple[str, str], str] = {}
"""(name of the file without `.json`, id or else name of the case) to the reason."""
