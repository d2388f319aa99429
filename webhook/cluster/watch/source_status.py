"""Sources of cluster data: how up to date each is, and when it is too old for rules to read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from engine.model.time import SECOND, Micros
from engine.view import DOMAIN_NAMES, Domain, Freshness

DEFAULT_STALE_SECONDS: Final = 180.0
"""Bookmarks come about once a minute on a quiet watch: three are missing then."""

_ARE: Final = {Domain.NODES: "are", Domain.PODS: "are", Domain.METRICS: "is", Domain.TOPOLOGY: "is"}

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class SourceStatus:
    """Status of one source, written by its owner and read by all."""

    name: str  # unique, such as `pods`
    domain: Domain | None  # what grows stale with it; None where no rule about nodes reads it
    required: bool  # whether nothing can be decided before its first sync
    present: bool = False  # whether the API server has such objects; False before the first contact
    synced: bool = False  # whether all its objects have been listed once
    last_contact: Micros | None = None  # the last event, bookmark, list or poll that succeeded
    events: int = 0  # changes that were watched
    relists: int = 0  # lists after the first one
    objects: int = 0  # how many are known
    skipped: int = 0  # objects that could not be read, since the start
    # the resourceVersion up to which all changes are known; 0 before the first list
    version: int = 0
    last_error: str = ""  # the present failure, empty if there is none

    @property
    def sync_settled(self) -> bool:
        """Whether it is synced, or optional and absent or failing: it must not delay the others."""
        if self.synced:
            return True
        is_absent = self.last_contact is not None and not self.present
        return not self.required and (is_absent or bool(self.last_error))


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleAfter:
    """The greatest age of each domain, in seconds, at which rules still read it."""

    nodes: float = DEFAULT_STALE_SECONDS
    pods: float = DEFAULT_STALE_SECONDS
    usage: float = DEFAULT_STALE_SECONDS

    def freshness(self, sources: Iterable[SourceStatus], now: Micros) -> Freshness:
        """Return the age of each source, and the domains that are stale.

        Several sources may feed one domain. Those of usage report the same, so it is as fresh as
        the freshest that has objects; those of topology report a part each, so it is as old as the
        oldest. A source that the cluster does not have counts only if it is required.
        """
        sources = tuple(sources)
        limits = {
            Domain.NODES: self.nodes,
            Domain.PODS: self.pods,
            Domain.METRICS: self.usage,
            Domain.TOPOLOGY: self.nodes,
        }
        stale = {
            domain: reason
            for domain, limit in limits.items()
            for reason in _staleness(domain, _feeding(domain, sources), limit, now)
        }
        ages = {source.name: age_seconds(source, now) for source in sources}
        known = {name: int(age) for name, age in ages.items() if age is not None}
        return Freshness(ages=known, stale=stale)


def age_seconds(source: SourceStatus, now: Micros) -> float | None:
    """Return the time since the last contact of a source; None if it is absent."""
    if source.last_contact is None or not source.present:
        return None
    return max(now - source.last_contact, 0) / SECOND


async def log_changes(freshness: Callable[[], Freshness], every_seconds: float) -> None:
    """Log each domain that becomes stale or fresh again; runs until cancelled."""
    before: Mapping[Domain, str] = {}
    while True:
        stale = freshness().stale
        for domain in stale.keys() - before.keys():
            _log.warning("%s: rules that read it abstain", stale[domain])
        for domain in before.keys() - stale.keys():
            _log.info("%s %s fresh again", DOMAIN_NAMES[domain], _ARE[domain])
        before = stale
        await asyncio.sleep(every_seconds)


def _feeding(domain: Domain, sources: Iterable[SourceStatus]) -> list[SourceStatus]:
    """Return the sources that determine the freshness of a domain; none if nothing feeds it."""
    expected = [
        source
        for source in sources
        if source.domain is domain and (source.present or source.required)
    ]
    if domain is Domain.TOPOLOGY:
        return expected
    return [source for source in expected if source.objects] or expected


def _staleness(
    domain: Domain, sources: Iterable[SourceStatus], limit: float, now: Micros
) -> Iterator[str]:
    """Yield the reason why a domain is stale, if it is."""
    subject = f"{DOMAIN_NAMES[domain]} {_ARE[domain]}"
    ages = [age_seconds(source, now) if source.synced else None for source in sources]
    oldest_or_newest = max if domain is Domain.TOPOLOGY else min
    age = oldest_or_newest((inf if age is None else age for age in ages), default=0)
    if age == inf:
        yield f"{subject} not known yet"
    elif age > limit:
        yield f"{subject} {int(age)} s old"
