"""How long a source may be silent before what it told is too old to judge by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from engine.model.time import SECOND, Micros
from engine.view import DOMAIN_NAMES, Domain, Freshness
from webhook.cluster.watch.source_status import SourceStatus

DEFAULT_STALE_SECONDS: Final = 180.0
"""Bookmarks come about once a minute on a quiet watch: this is silence where three were due."""

_ARE: Final = {Domain.NODES: "are", Domain.PODS: "are", Domain.METRICS: "is", Domain.TOPOLOGY: "is"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleAfter:
    """The longest silence, in seconds, after which a domain is still believed."""

    nodes: float = DEFAULT_STALE_SECONDS
    pods: float = DEFAULT_STALE_SECONDS
    usage: float = DEFAULT_STALE_SECONDS

    def freshness(self, sources: Iterable[SourceStatus], now: Micros) -> Freshness:
        """Return how old what the sources told is.

        Several sources may feed one domain. Those of usage tell the same, so it is as fresh as the
        one heard last, of those that told anything; those of topology tell a part each, so it is as
        old as the one heard first. A source that the cluster does not have is not waited for,
        unless it is required.
        """
        sources = tuple(sources)
        limits = {
            Domain.NODES: self.nodes,
            Domain.PODS: self.pods,
            Domain.METRICS: self.usage,
            Domain.TOPOLOGY: self.nodes,
        }
        stale = {
            domain: why
            for domain, limit in limits.items()
            for why in _staleness(domain, _feeding(domain, sources), limit, now)
        }
        ages = {source.name: age_seconds(source, now) for source in sources}
        heard = {name: int(age) for name, age in ages.items() if age is not None}
        return Freshness(ages=heard, stale=stale)


def age_seconds(source: SourceStatus, now: Micros) -> float | None:
    """Return the time since a source was last heard; None if it told nothing, as one not there."""
    if source.last_contact is None or not source.present:
        return None
    return max(now - source.last_contact, 0) / SECOND


async def log_changes(freshness: Callable[[], Freshness], every_seconds: float) -> None:
    """Say in the log what becomes stale and what is fresh again; runs until cancelled."""
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
    """Return the sources that a domain is as fresh as; none if nothing feeds it."""
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
    """Yield why a domain is stale, if it is."""
    subject = f"{DOMAIN_NAMES[domain]} {_ARE[domain]}"
    ages = [age_seconds(source, now) if source.synced else None for source in sources]
    counts = max if domain is Domain.TOPOLOGY else min
    age = counts((inf if age is None else age for age in ages), default=0)
    if age == inf:
        yield f"{subject} not known yet"
    elif age > limit:
        yield f"{subject} {int(age)} s old"
