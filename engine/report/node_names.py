"""Names of nodes as people read them: without the end that all of them share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from os.path import commonprefix
from typing import Final

_LEAST: Final = 8
"""Characters: a shorter end is not worth the sentence that tells of it."""


@dataclass(frozen=True, slots=True)
class NodeNames:
    """How the nodes of a cluster are named where there is little room.

    Attributes:
        suffix: of all names, from a dot on, such as `.eu-central-1.compute.internal`; "" for none
            that is worth it.
    """

    suffix: str = ""

    @classmethod
    def of(cls, names: Iterable[str]) -> NodeNames:
        """Return how nodes are named; several of them have something in common."""
        reversed_names = [name[::-1] for name in names]
        if len(reversed_names) < 2:  # noqa: PLR2004 - one has everything in common with itself
            return cls()
        common = commonprefix(reversed_names)[::-1]  # noqa: RUF071 - characters are meant
        dot = common.find(".")
        suffix = common[dot:] if dot >= 0 else ""
        return cls(suffix if len(suffix) >= _LEAST else "")

    @property
    def note(self) -> str:
        """What is to be said once, "" for nothing."""
        return f"names of nodes end with {self.suffix}" if self.suffix else ""

    def short(self, name: str) -> str:
        """Return the name of a node without the suffix."""
        return name.removesuffix(self.suffix)

    def in_text(self, text: str) -> str:
        """Return a text in which names of nodes are short."""
        if not self.suffix or self.suffix not in text:
            return text
        return re.sub(rf"(?<=[a-z0-9]){re.escape(self.suffix)}(?![-\w])", "", text)
