"""What a replica knows when it judges, and what time is to it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from engine.model.quantity import INT64_MAX
from engine.quota import AllowanceConfig, ReservationTimeouts
from engine.view import ClusterView
from webhook.cluster.watch.source_status import SourceStatus
from webhook.quota.observed_pods import ObservedPods


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The cluster as a replica sees it; nothing of it may lag behind `heard`.

    Attributes:
        view: pods and quotas.
        seen: the pods that came by watch.
        heard: the resourceVersion up to which all pods have been heard of, 0 before there was a
            list.
        quotas_known: whether a namespace without a quota in the view has none.
    """

    view: Callable[[], ClusterView]
    seen: ObservedPods = field(default_factory=ObservedPods)
    observed_version: Callable[[], int] = lambda: INT64_MAX
    quotas_synced: Callable[[], bool] = lambda: True


def all_synced(sources: Iterable[SourceStatus]) -> bool:
    """Whether each source was heard in full, or is known not to exist."""
    return all(
        source.synced or (source.last_contact is not None and not source.present)
        for source in sources
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTiming:
    """What time is to a ledger.

    Attributes:
        clock: seconds that only go forward.
        sleep: waits for some seconds.
        jitter: a number in [0, 1).
        call_seconds: how long a request to the API server may take.
        patience: how long reservations are kept.
        lending: when room is taken ahead, and how much.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    call_seconds: float = 3.0
    timeouts: ReservationTimeouts = field(default_factory=ReservationTimeouts)
    allowances: AllowanceConfig = field(default_factory=AllowanceConfig)
