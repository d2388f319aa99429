"""Pods of one template that come at the same time share a decision where time is short.

A decision takes milliseconds, so of a thousand pods a second most would have to pass without any
advice if each had one of its own. The pods of a workload are told apart by what the API server
names after the webhooks, so what holds for one of them holds for the next, but that the first has
taken some room. That is neglected for some of them and for a moment.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from engine.model.advice import Advice
from engine.model.pod import Pod
from engine.placement import advice_id
from engine.policy import PolicySet
from webhook.answers import Answer, Outcome
from webhook.review import AdmissionRequest

_LATELY_SECONDS = 0.1
_BUSY_SHARE = 0.25  # of the time lately; what is left goes on reading, answering and events
_LONGEST_SECONDS = 0.25
_MOST_TWINS = 32
_MOST_KEPT = 256
_MOST_BYTES = 16 * 1024  # of a request that is kept

# The ServiceAccount admission plugin names the volume of a pod's token at random.
_TOKEN_VOLUME = re.compile(rb'"kube-api-access-[a-z0-9]{5}"')

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Advised:
    """A pod, the answer to the request to create it, and the advice in that answer."""

    pod: Pod
    answer: Answer
    advice: Advice


@dataclass(slots=True)
class _Kept:
    advised: Advised
    policies: PolicySet
    at: float
    twins: int = 0


_Template: TypeAlias = tuple[bytes, bytes]


class Twins:
    """The decisions of the last moments, for pods like those they were made for.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[_Template, _Kept] = OrderedDict()
        self._spent: deque[tuple[float, float]] = deque()  # when, and how long; seconds

    @property
    def is_busy(self) -> bool:
        """Whether decisions have taken so much of the time lately that some should be shared."""
        since = self._clock() - _LATELY_SECONDS
        while self._spent and self._spent[0][0] < since:
            self._spent.popleft()
        return sum(seconds for _, seconds in self._spent) > _BUSY_SHARE * _LATELY_SECONDS

    def find(self, request: AdmissionRequest, policies: PolicySet) -> Advised | None:
        """Return what comes of a request from what came of its twin, None where it is to be found.

        Args:
            request: to create a pod.
            policies: those in force.
        """
        if not self._may_share(request):
            return None
        kept = self._kept.get(_template(request))
        if kept is None or kept.policies is not policies or kept.twins >= _MOST_TWINS:
            return None
        if self._clock() - kept.at > _LONGEST_SECONDS:
            return None
        kept.twins += 1
        return _under_its_own_name(kept.advised, request.uid)

    def keep(
        self, request: AdmissionRequest, policies: PolicySet, advised: Advised, began: float
    ) -> None:
        """Keep what came of a request for twins of its pod, if they can be expected.

        Args:
            request: to create a pod.
            policies: those it was decided by.
            advised: what came of it.
            began: when it was begun.
        """
        now, answer = self._clock(), advised.answer
        self._spent.append((now, now - began))
        if answer.outcome is not Outcome.PLACED or not self._may_share(request):
            return
        if (answer.response.patch or b"").count(advised.advice.id.encode()) != 1:
            return  # the pod had an advice already
        template = _template(request)
        self._kept[template] = _Kept(advised, policies, now)
        self._kept.move_to_end(template)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def _may_share(self, request: AdmissionRequest) -> bool:
        """Whether a pod may have twins: it is not named yet, and time is short."""
        has_no_name = not request.name and not request.dry_run
        return has_no_name and len(request.object) <= _MOST_BYTES and self.is_busy


def _template(request: AdmissionRequest) -> _Template:
    """Return what is equal for requests that no rule can tell apart, but by their uid."""
    around = _encode((request.namespace, request.user_info, request.options))
    return _TOKEN_VOLUME.sub(b'""', request.object), around


def _under_its_own_name(twin: Advised, uid: str) -> Advised:
    """Return what came of a twin's request as the answer to another, with an advice of its own."""
    response, own = twin.answer.response, advice_id(uid)
    patch = (response.patch or b"").replace(twin.advice.id.encode(), own.encode())
    response = msgspec.structs.replace(response, uid=uid, patch=patch)
    answer = replace(twin.answer, outcome=Outcome.SHARED, response=response)
    return Advised(twin.pod, answer, msgspec.structs.replace(twin.advice, id=own))
