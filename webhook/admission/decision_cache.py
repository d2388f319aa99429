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
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from engine.model.advice import Advice
from engine.model.pod import Pod
from engine.placement import advice_id
from engine.policy import PolicySet
from webhook.admission.review_result import Outcome, ReviewResult
from webhook.admission.wire import AdmissionRequest

_MICROS = 1_000_000
_LATELY_SECONDS = 0.1
_BUSY_SHARE = 0.1  # of the time lately: at four times that, reviews begin to wait for each other
_LONGEST_SECONDS = 0.25
_MOST_TWINS = 32
_MOST_KEPT = 64  # of those that come at a time, each some 10 KB
_MOST_BYTES = 16 * 1024  # of a request that is kept

# The ServiceAccount admission plugin names the volume of a pod's token at random.
_TOKEN_VOLUME = re.compile(rb'"kube-api-access-[a-z0-9]{5}"')

_encode = msgspec.json.Encoder().encode


class Advised(msgspec.Struct, frozen=True):
    """A pod, the answer to the request to create it, and the advice in that answer."""

    pod: Pod
    answer: ReviewResult
    advice: Advice


@dataclass(slots=True)
class _Kept:
    advised: Advised
    around: tuple[bytes, bytes, bytes]  # the patch, but for the nodes and the id of its advice
    policies: PolicySet
    at: float
    twins: int = 0


_Template: TypeAlias = tuple[bytes, bytes]


class DecisionCache:
    """The decisions of the last moments, for pods like those they were made for.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[_Template, _Kept] = OrderedDict()
        self._spent: deque[tuple[float, int]] = deque()  # when, and how long; microseconds
        self._spent_lately = 0  # INVARIANT: the sum of those

    @property
    def is_busy(self) -> bool:
        """Whether decisions have taken so much of the time lately that some should be shared."""
        since = self._clock() - _LATELY_SECONDS
        while self._spent and self._spent[0][0] < since:
            self._spent_lately -= self._spent.popleft()[1]
        return self._spent_lately > _BUSY_SHARE * _LATELY_SECONDS * _MICROS

    def get(self, request: AdmissionRequest, policies: PolicySet) -> Advised | None:
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
        return _under_its_own_name(kept, request.uid)

    def put(
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
        spent = round((now - began) * _MICROS)
        self._spent.append((now, spent))
        self._spent_lately += spent
        if answer.outcome is not Outcome.PLACED or not self._may_share(request):
            return
        around = _around(advised.advice, answer.response.patch or b"")
        if around is None:
            return  # the pod had an advice already
        template = _template(request)
        self._kept[template] = _Kept(advised, around, policies, now)
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


def _around(advice: Advice, patch: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return a patch without the nodes and the id of its advice; None if they stand twice in it."""
    nodes, own = _written(advice.nodes), advice.id.encode()
    if not own or patch.count(own) != 1 or (nodes and patch.count(nodes) != 1):
        return None
    before, _, rest = patch.partition(nodes) if nodes else (b"", b"", patch)
    between, found, after = rest.partition(own)
    return (before, between, after) if found else None


def _written(nodes: tuple[str, ...]) -> bytes:
    """Return names as they stand in an advice in a patch: in JSON, in a text in JSON."""
    return _encode(_encode(nodes).decode())[1:-1] if nodes else b""


def _under_its_own_name(kept: _Kept, uid: str) -> Advised:
    """Return what came of a twin's request as the answer to another, with an advice of its own.

    Its best node is the next one of those that the first was advised to take: the scheduler will
    not put all of them on one either, and each counts on its best node until it is bound.
    """
    twin, own = kept.advised, advice_id(uid)
    first = kept.twins % max(1, len(twin.advice.nodes))
    nodes = twin.advice.nodes[first:] + twin.advice.nodes[:first]
    before, between, after = kept.around
    patch = b"".join((before, _written(nodes), between, own.encode(), after))
    response = msgspec.structs.replace(twin.answer.response, uid=uid, patch=patch)
    answer = msgspec.structs.replace(twin.answer, outcome=Outcome.SHARED, response=response)
    return Advised(twin.pod, answer, msgspec.structs.replace(twin.advice, nodes=nodes, id=own))
