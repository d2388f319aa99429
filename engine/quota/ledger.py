"""Reservations of quota between the answer to a review and the moment the pod is seen.

The ledger is what makes concurrent requests add up: a pod that was admitted counts at once, long
before a watch event tells of it. It is used from one thread; a call is atomic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import QuotaLedgerFullError
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.quota.verdict import QuotaVerdict, judge
from engine.view import ClusterView, counted_requests

DEFAULT_RESERVATION_SECONDS = 60
_MOST_RESERVATIONS = 100_000


@dataclass(frozen=True, slots=True)
class _Reservation:
    namespace: str
    requests: Amounts
    expires_at: Micros


class QuotaLedger:
    """Admits pods against the ElasticQuotas of a view plus what it has promised itself.

    INVARIANT: for every quota and every resource its `max` names, the pods of the view plus the
    living reservations never exceed `max` through an admission made here.
    """

    def __init__(self, *, reservation_seconds: int = DEFAULT_RESERVATION_SECONDS) -> None:
        self._reservation_micros = reservation_seconds * SECOND
        self._by_uid: OrderedDict[str, _Reservation] = OrderedDict()  # oldest first
        self._reserved: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def admit(
        self, pod: Pod, view: ClusterView, now: Micros, *, uid: str, dry_run: bool = False
    ) -> QuotaVerdict:
        """Say whether a new pod fits every quota of its namespace, and reserve its share if so.

        A repeated request for the same pod is judged without its own earlier reservation, so a
        retry never counts twice.

        Args:
            pod: the final pod.
            view: what is known to exist.
            now: the moment of the request.
            uid: identifies the pod: its own uid, or the request's where it has none yet.
            dry_run: judge, but reserve nothing.

        Raises:
            QuotaLedgerFullError: too many admitted pods have not been seen yet.
        """
        quotas = view.quotas.get(pod.namespace, ())
        if not quotas:
            return QuotaVerdict()
        self._expire(now)
        earlier = self._by_uid.get(uid)
        if earlier is not None:
            self._release(uid)
        requests = counted_requests(pod.shape)
        used = _sum(view.namespace_requests.get(pod.namespace, {}), self._of(pod.namespace))
        verdict = judge(requests, used, quotas)
        if verdict.allowed and len(self._by_uid) >= _MOST_RESERVATIONS:
            raise QuotaLedgerFullError(f"{_MOST_RESERVATIONS} reservations wait to be seen")
        if dry_run and earlier is not None:
            self._hold(uid, earlier)
        elif verdict.allowed and not dry_run:
            self._hold(
                uid, _Reservation(pod.namespace, requests, Micros(now + self._reservation_micros))
            )
        return verdict

    def settle(self, uid: str) -> None:
        """End a reservation: its pod is in the view now, or is known never to come."""
        if uid in self._by_uid:
            self._release(uid)

    def _of(self, namespace: str) -> Mapping[str, int]:
        return self._reserved.get(namespace, {})

    def _expire(self, now: Micros) -> None:
        while self._by_uid:
            uid, oldest = next(iter(self._by_uid.items()))
            if oldest.expires_at > now:
                return
            self._release(uid)

    def _hold(self, uid: str, reservation: _Reservation) -> None:
        self._by_uid[uid] = reservation
        total = self._reserved.setdefault(reservation.namespace, {})
        for name, amount in reservation.requests.items():
            total[name] = total.get(name, 0) + amount

    def _release(self, uid: str) -> None:
        reservation = self._by_uid.pop(uid)
        total = self._reserved[reservation.namespace]
        for name, amount in reservation.requests.items():
            total[name] -= amount
        if not total["pods"]:
            del self._reserved[reservation.namespace]


def _sum(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in a.keys() | b.keys()}
