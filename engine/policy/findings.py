"""What is allowed in a part of a policy and probably not meant."""

from __future__ import annotations

from dataclasses import dataclass

from engine.documents import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a part of a policy that its author should think of.

    Attributes:
        part: what `PartPlaces` calls it; "" for the policy as a whole.
        message: what it is.
        hint: what to write instead, "" where that is not known.
        offset: the character of the part's expression that it is about.
        path: leads to the value in the document, where that is not in the part's expression.
    """

    part: str
    message: str
    hint: str = ""
    offset: int = 0
    path: Path = ()

    def __str__(self) -> str:
        """Return it on one line."""
        part = f"{self.part}: " if self.part else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{part}{self.message}{hint}"
