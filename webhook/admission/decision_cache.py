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
from engine.placement import advice_id
from engine.policy import PolicySet
from webhook.admission.wire import AdmissionRequest
from webhook.placement.placer import Placement

_MICROS = 1_000_000
_WINDOW_SECONDS = 0.1
_BUSY_SHARE = 0.1  # of the window: at four times that, reviews begin to wait for each other
_MAX_AGE_SECONDS = 0.25
_MAX_SHARES = 32
_MAX_ENTRIES = 64  # of templates that arrive together, each some 10 KB
_MAX_REQUEST_BYTES = 16 * 1024

# The ServiceAccount admission plugin names the volume of a pod's token at random. The name stands
# in the volume and its mounts; anywhere else it is a text of the user's, which rules may read.
_TOKEN_VOLUME = re.compile(
    rb'(?<=\{"name":)"kube-api-access-[a-z0-9]{5}"'
    rb'(?=,"projected":|,"readOnly":true,"mountPath":"/var/run/secrets/kubernetes\.io/serviceaccount"\})'
)

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Entry:
    placement: Placement
    policies: PolicySet
    at: float
    shares: int = 0


_Template: TypeAlias = tuple[bytes, bytes]


class DecisionCache:
    """The placements of the last moments, by template.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[_Template, _Entry] = OrderedDict()
        self._spent: deque[tuple[float, int]] = deque()  # when, and for how many microseconds
        self._spent_in_window = 0  # INVARIANT: the sum of those

    @property
    def is_busy(self) -> bool:
        """Whether decisions took so much of the last moments that some should be shared."""
        since = self._clock() - _WINDOW_SECONDS
        while self._spent and self._spent[0][0] < since:
            self._spent_in_window -= self._spent.popleft()[1]
        return self._spent_in_window > _BUSY_SHARE * _WINDOW_SECONDS * _MICROS

    def get(self, request: AdmissionRequest, policies: PolicySet) -> Placement | None:
        """Placement for a pod by the decision for another of its template, None if there is none.

        Args:
            request: to create a pod.
            policies: those in force.
        """
        if not self._may_share(request):
            return None
        entry = self._entries.get(_template(request))
        if entry is None or entry.policies is not policies or entry.shares >= _MAX_SHARES:
            return None
        if self._clock() - entry.at > _MAX_AGE_SECONDS:
            return None
        entry.shares += 1
        return _shared(entry, request.uid)

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
    return _TOKEN_VOLUME.sub(b'""', request.object), context


def _shared(entry: _Entry, uid: str) -> Placement:
    """Placement for the next pod of a template, with an advice of its own.

    Its best node is the next of those advised to the first pod: the scheduler will not put all of
    them on one node either, and each counts on its best node until it is bound.
    """
    advice = entry.placement.patch.advice
    first = entry.shares % max(1, len(advice.nodes))
    nodes = advice.nodes[first:] + advice.nodes[:first]
    advice = msgspec.structs.replace(advice, nodes=nodes, id=advice_id(uid))
    patch = entry.placement.patch.with_advice(advice)
    return msgspec.structs.replace(entry.placement, patch=patch, advice=advice)
