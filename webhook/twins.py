"""Pods of one template that come at the same time share a decision where time is short.

A decision takes a millisecond, so a burst of a thousand pods a second can be decided one by one, or
be answered, but not both; the rest would have to pass without any advice. The pods of a workload
are told apart by what the API server names after the webhooks, so what holds for one of them holds
for the next, but that the first has taken some room. That is neglected for a few of them and for a
few milliseconds, about as long as replicas take to see what others advise.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import msgspec

from engine.model.advice import Advice
from engine.placement import advice_id
from engine.policy import PolicySet
from webhook.answers import Answer, Outcome
from webhook.review import AdmissionRequest

_LATELY_SECONDS = 0.1
_BUSY_SHARE = 0.25  # of the time lately; what is left goes on reading, answering and events
_LONGEST_SECONDS = 0.05
_MOST_TWINS = 8
_MOST_KEPT = 256  # a few KiB each

# The ServiceAccount admission plugin names the volume of a pod's token at random.
_TOKEN_VOLUME = re.compile(rb'"kube-api-access-[a-z0-9]{5}"')

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Kept:
    answer: Answer
    advice: Advice
    policies: PolicySet
    at: float
    twins: int = 0


class Twins:
    """The decisions of the last moments, for pods like those they were made for.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._spent: deque[tuple[float, float]] = deque()  # when, and how long; seconds

    @property
    def is_busy(self) -> bool:
        """Whether decisions have taken so much of the time lately that some should be shared."""
        since = self._clock() - _LATELY_SECONDS
        while self._spent and self._spent[0][0] < since:
            self._spent.popleft()
        return sum(seconds for _, seconds in self._spent) > _BUSY_SHARE * _LATELY_SECONDS

    def find(self, request: AdmissionRequest, policies: PolicySet) -> tuple[Answer, Advice] | None:
        """Return the answer to a request from that to its twin, None where it has to be found.

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
        patch, own = kept.answer.response.patch or b"", advice_id(request.uid)
        if patch.count(kept.advice.id.encode()) != 1:
            return None
        kept.twins += 1
        response = msgspec.structs.replace(
            kept.answer.response,
            uid=request.uid,
            patch=patch.replace(kept.advice.id.encode(), own.encode()),
        )
        answer = replace(kept.answer, outcome=Outcome.SHARED, response=response)
        return answer, msgspec.structs.replace(kept.advice, id=own)

    def keep(
        self,
        request: AdmissionRequest,
        policies: PolicySet,
        decided: tuple[Answer, Advice],
        began: float,
    ) -> None:
        """Keep a decision for twins of its pod, if they can be expected.

        Args:
            request: to create a pod.
            policies: those it was decided by.
            decided: what came of it.
            began: when.
        """
        now, (answer, advice) = self._clock(), decided
        self._spent.append((now, now - began))
        if answer.outcome is not Outcome.PLACED or not advice.id or not self._may_share(request):
            return
        template = _template(request)
        self._kept[template] = _Kept(answer, advice, policies, now)
        self._kept.move_to_end(template)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def _may_share(self, request: AdmissionRequest) -> bool:
        """Whether a pod may have twins: it is not named yet, and time is short."""
        return not request.name and not request.dry_run and self.is_busy


def _template(request: AdmissionRequest) -> bytes:
    """Return what is equal for requests that no rule can tell apart, but by their uid."""
    digest = blake2b(_TOKEN_VOLUME.sub(b'""', bytes(request.object)), digest_size=16)
    digest.update(_encode((request.namespace, request.user_info, request.options)))
    return digest.digest()
