"""What the server says of itself in its metrics."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_PATIENCE_SECONDS = 10
_REVIEW_SECONDS = "stowplan_review_seconds"

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples at one moment, by name and labels."""

    samples: Mapping[tuple[str, Labels], float]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum of the samples of a name with these labels among theirs, None if none."""
        wanted = labels.items()
        found = [
            value
            for (named, its), value in self.samples.items()
            if named == name and wanted <= dict(its).items()
        ]
        return sum(found) if found else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Return the samples of a name by one of their labels."""
        wanted = labels.items()
        found: dict[str, float] = {}
        for (named, its), value in self.samples.items():
            told = dict(its)
            if named == name and wanted <= told.items():
                found[told[label]] = found.get(told[label], 0.0) + value
        return found


def scraped(url: str) -> Scrape:
    """Return the metrics at a URL."""
    with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 (ours)
        text = answer.read().decode()
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What the server says of the reviews between two scrapes, of one path.

    Attributes:
        outcomes: how many came to what.
        mean: seconds from arrival to answer.
        counts: reviews by the upper bound of their bucket, in seconds, cumulative and ascending.
    """

    outcomes: Mapping[str, int]
    mean: float
    counts: Mapping[float, int]

    def quantile(self, share: float) -> float:
        """Return the time that a share of reviews took at most, seconds.

        Within a bucket reviews are taken to be spread evenly; what is beyond the last bound counts
        as infinite.
        """
        wanted = share * max(self.counts.values(), default=0)
        below, so_far = 0.0, 0
        for bound, count in self.counts.items():
            if count >= wanted and count > so_far:
                return below + (bound - below) * (wanted - so_far) / (count - so_far)
            below, so_far = bound, count
        return math.nan


def handled(before: Scrape, after: Scrape, path: str = "mutate") -> Handled:
    """Return what happened to reviews from one scrape to the next."""

    def gain(name: str) -> float:
        return (after.value(name, path=path) or 0) - (before.value(name, path=path) or 0)

    def gains(label: str, name: str) -> dict[str, int]:
        earlier = before.by(label, name, path=path)
        later = after.by(label, name, path=path)
        return {key: int(value - earlier.get(key, 0)) for key, value in later.items()}

    count = gain(f"{_REVIEW_SECONDS}_count")
    buckets = gains("le", f"{_REVIEW_SECONDS}_bucket")
    outcomes = gains("outcome", "stowplan_reviews_total")
    return Handled(
        outcomes={outcome: number for outcome, number in outcomes.items() if number},
        mean=gain(f"{_REVIEW_SECONDS}_sum") / count if count else math.nan,
        counts=dict(sorted((float(bound), number) for bound, number in buckets.items())),
    )
