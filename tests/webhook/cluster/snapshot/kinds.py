"""Kinds of the table, by their name."""

from __future__ import annotations

from engine.model.kinds import KINDS

KINDS_BY_NAME = {(kind.group, kind.kind): kind for kind in KINDS}
"""By API group and `kind`."""
