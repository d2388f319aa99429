"""How well we hear one source of what we know about a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.time import Micros
from engine.view import Domain


@dataclass(slots=True, kw_only=True)
class SourceStatus:
    """What is known of a source; its owner writes, everybody reads.

    Attributes:
        name: what people call it, as `pods`.
        domain: what grows old with it; None where no rule about nodes reads it.
        required: whether nothing can be decided before it was heard once.
        present: whether the API server has such objects; False until it was heard.
        synced: whether everything it holds was heard at least once.
        heard_at: the last successful contact: an event, a bookmark, a list, a poll.
        events: changes that were watched.
        relists: lists after the first one.
        objects: how many are known.
        skipped: objects that could not be read, since the start.
        version: the resourceVersion up to which everything was heard; 0 before the first list.
        last_error: what is wrong right now, empty when nothing is.
    """

    name: str
    domain: Domain | None
    required: bool
    present: bool = False
    synced: bool = False
    last_contact: Micros | None = None
    events: int = 0
    relists: int = 0
    objects: int = 0
    skipped: int = 0
    version: int = 0
    last_error: str = ""

    @property
    def sync_settled(self) -> bool:
        """Whether waiting for it makes no sense any more: it was heard, or need not be there.

        An optional source that fails is settled too: it must not keep the others from serving.
        """
        if self.synced:
            return True
        heard_nothing = self.last_contact is not None and not self.present
        return not self.required and (heard_nothing or bool(self.last_error))
