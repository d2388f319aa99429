"""Decisions shared by pods of one template that arrive together while time is short.

A decision takes milliseconds, so of a thousand pods a second most would pass without advice if each
had a decision of its own. Pods of one workload differ only in what the API server names after the
webhooks, so what holds for the first of them holds for the next, but for the room that the first
has taken. That is neglected for a few pods and a moment.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from engine.model.decision import Verdict
from engine.placement import PatchTemplate, SharedPatch
from engine.policy import PolicySet
from webhook.admission.wire import AdmissionRequest
from webhook.placement.placer import Placement

_MICROS = 1_000_000
_WINDOW_SECONDS = 0.1
_BUSY_SHARE = 0.1  # of the window: at four times that, reviews begin to wait for each other
_MAX_AGE_SECONDS = 0.25  # of a decision, when decisions take the busy share
_OLDEST_SECONDS = 1.0  # when they take four times that, or more
_MAX_SHARES = 32
_LAST_RESORT = 2  # times as old, and as many shares, where a pod gets this decision or none
_MAX_ENTRIES = 64  # of templates that arrive together, each some 10 KB
_MAX_REQUEST_BYTES = 16 * 1024

# The ServiceAccount admission plugin names the volume of a pod's token at random. The name stands
# in the volume and its mounts; anywhere else it is a text of the user's, which rules may read.
# The expression begins with plain text, which is found 25 times as fast as a lookbehind.
_TOKEN_VOLUME = re.compile(
    rb'\{"name":"kube-api-access-[a-z0-9]{5}"'
    rb'(?=,"projected":|,"readOnly":true,"mountPath":"/var/run/secrets/kubernetes\.io/serviceaccount"\})'
)

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Entry:
    placement: Placement
    policies: PolicySet
    at: float
    shares: int = 0
    template: PatchTemplate | None = None  # once a pod shares it

    def share(self, review_uid: str) -> SharedPatch:
        """Return the patch of the next pod."""
        if self.template is None:
            self.template = PatchTemplate(self.placement.patch)
        self.shares += 1
        return self.template.filled(self.shares, review_uid)


_Template: TypeAlias = tuple[bytes, bytes]


class DecisionCache:
    """The placements of the last moments, by template.

    Args:
        clock: monotonic seconds.
        is_crowded: whether reviews wait for each other.
    """

    def __init__(self, clock: Callable[[], float], is_crowded: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_crowded = is_crowded
        self._entries: OrderedDict[_Template, _Entry] = OrderedDict()
        self._spent: deque[tuple[float, int]] = deque()  # when, and for how many microseconds
        self._spent_in_window = 0  # INVARIANT: the sum of those

    @property
    def is_busy(self) -> bool:
        """Whether some decisions should be shared, or else reviews wait for them."""
        return self._is_crowded() or self._business() > 1

    def _business(self) -> float:
        """How much time decisions take, 1 for the busy share."""
        since = self._clock() - _WINDOW_SECONDS
        while self._spent and self._spent[0][0] < since:
            self._spent_in_window -= self._spent.popleft()[1]
        return self._spent_in_window / (_BUSY_SHARE * _WINDOW_SECONDS * _MICROS)

    def may_have(self, request: AdmissionRequest) -> bool:
        """Whether there may be a placement for a pod; takes a microsecond or two."""
        return bool(self._entries) and self._may_share(request)

    def get(
        self, request: AdmissionRequest, policies: PolicySet, *, is_last_resort: bool = False
    ) -> tuple[Placement, SharedPatch] | None:
        """Placement of another pod of a template, and the patch for this one; None for neither.

        Args:
            request: to create a pod.
            policies: those in force.
            is_last_resort: whether the pod gets no decision of its own: an older one is better.
        """
        if not self.may_have(request):
            return None
        entry = self._entries.get(_template(request))
        if entry is None or entry.policies is not policies:
            return None
        most = _MAX_SHARES * _LAST_RESORT if is_last_resort else _MAX_SHARES
        if entry.shares >= most or self._clock() - entry.at > self._oldest(is_last_resort):
            return None
        return entry.placement, entry.share(request.uid)

    def _oldest(self, is_last_resort: bool) -> float:  # noqa: FBT001 - as in `get`
        """Return how old a decision may be that is shared, in seconds."""
        if is_last_resort:
            return _OLDEST_SECONDS * _LAST_RESORT
        return min(_MAX_AGE_SECONDS * max(1.0, self._business()), _OLDEST_SECONDS)

    def put(
        self, request: AdmissionRequest, policies: PolicySet, placement: Placement, began: float
    ) -> None:
        """Store a placement if further pods of its template can be expected.

        Args:
            request: to create a pod.
            policies: those it was decided by.
            placement: of that pod.
            began: when its decision was begun.
        """
        now = self._clock()
        spent = round((now - began) * _MICROS)
        self._spent.append((now, spent))
        self._spent_in_window += spent
        is_first_round = bool(placement.patch.advice.id)
        if placement.verdict is not Verdict.PLACE or not is_first_round:
            return
        if not self._may_share(request):
            return
        template = _template(request)
        if sum(map(len, template)) > _MAX_REQUEST_BYTES:
            return
        self._entries[template] = _Entry(placement, policies, now)
        self._entries.move_to_end(template)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

    def _may_share(self, request: AdmissionRequest) -> bool:
        """Whether a pod may share a decision: it has no name yet, and time is short."""
        has_no_name = not request.name and not request.dry_run
        return has_no_name and len(request.object) <= _MAX_REQUEST_BYTES and self.is_busy


def _template(request: AdmissionRequest) -> _Template:
    """Everything by which a rule can tell two requests apart, except their uid."""
    context = _encode((request.namespace, request.user_info, request.options))
    return _TOKEN_VOLUME.sub(b'{"name":""', request.object), context
