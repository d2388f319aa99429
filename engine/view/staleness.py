"""What of a view is too old to judge by, and how old the rest is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.model.domain import Domain

DOMAIN_NAMES: Final[Mapping[Domain, str]] = {
    Domain.NODES: "nodes",
    Domain.PODS: "pods",
    Domain.METRICS: "usage",
    Domain.TOPOLOGY: "topology",
}
"""What people call a domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How long ago a cluster was last heard of, and what that makes stale.

    How old is too old is for the caller to say; a rule that reads what is stale abstains. Without
    arguments nothing is stale, as in a recorded cluster: it is what it is.

    Attributes:
        ages: whole seconds since each source was last heard, by the name of the source.
        stale: the domains that are too old, each with a text that says so: `usage is 95 s old`.
    """

    ages: Mapping[str, int] = field(default_factory=dict)
    stale: Mapping[Domain, str] = field(default_factory=dict)

    def stale_among(self, domains: Iterable[Domain]) -> Mapping[str, str]:
        """Return which of `domains` are stale: their texts by `DOMAIN_NAMES`."""
        return {
            DOMAIN_NAMES[domain]: self.stale[domain] for domain in domains if domain in self.stale
        }


FRESH: Final = Freshness()
"""Nothing is stale."""
