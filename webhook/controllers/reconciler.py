"""The reconciler: keeps what is written on objects as it should be.

A `DesiredState` says for the objects of one kind what is written there, and what should be. The
reconciler owns everything else: which objects differ, when each may be written, what was written
and is not observed yet, failures, drift, and the loss of the lead.

No decision rests on what it writes, which is for people. So it may be late, and writes are few.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from engine.model import api
from webhook.cluster.client.connection import MERGE_PATCH, ApiError, Connection
from webhook.cluster.timing import MonotonicClock

_ROUND_SECONDS: Final = 1.0
_CALL_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 5.0  # after a first failure; doubles with each further one
_LONGEST_RETRY_SECONDS: Final = 60.0
_UNOBSERVED_SECONDS: Final = 60.0
"""For which a write counts although it is not observed; versions begin again after a restore."""

_DRIFT_SECONDS: Final = 60.0
"""Time for which a write is overdue before that counts as drift."""

_log = logging.getLogger(__name__)


class _Written(msgspec.Struct):
    metadata: api.ObjectMeta


_written: Final = msgspec.json.Decoder(_Written).decode


class Observed(Protocol):
    @property
    def key(self) -> Any:  # noqa: ANN401 - of one type for all objects of a kind, in some order
        """What tells it from others of its kind."""

    @property
    def version(self) -> int:
        """Its resourceVersion."""


_Object = TypeVar("_Object", bound=Observed)
_State = TypeVar("_State")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    most_writes: int  # in a round, of one second
    apart_seconds: float  # least time between two writes of one object
    settle_seconds: float = 0.0  # time for which an object differs before it is written


class DesiredState(ABC, Generic[_Object, _State]):
    """What is written on the objects of one kind, and what should be."""

    limits: WriteLimits

    @abstractmethod
    async def objects(self) -> Iterable[_Object]:
        """Return the objects, once for each round."""

    @abstractmethod
    def current(self, found: _Object) -> _State:
        """Return what is written on an object."""

    @abstractmethod
    def desired(self, found: _Object, current: _State) -> _State | None:
        """Return what should be written; None if only `read` can tell."""

    async def read(self, found: _Object, current: _State) -> _State:
        """Return what should be written, by a request to the API server."""
        raise NotImplementedError

    def apart_seconds(self, current: _State, desired: _State | None) -> float:  # noqa: ARG002 - for those that depend on it
        """Return the least time since the last write of an object."""
        return self.limits.apart_seconds

    @abstractmethod
    def merge_patch(
        self, found: _Object, current: _State, desired: _State
    ) -> tuple[str, Mapping[str, object]]:
        """Return the path and the body of the write."""

    @abstractmethod
    def title(self, found: _Object) -> str:
        """Return what the log calls it, such as "status of quota `shop/team`"."""


@dataclass(slots=True)
class _Record:
    """What was done about one object; moments by the clock of the reconciler."""

    differs_since: float | None = None
    attempted_at: float = float("-inf")
    retry_seconds: float = 0.0  # after a failure; 0 after a success
    version: int = 0  # made by the last write
    written: Any = None  # by it
    is_drift_logged: bool = False


@dataclass(frozen=True, slots=True)
class _Difference(Generic[_Object, _State]):
    found: _Object
    record: _Record
    current: _State
    desired: _State | None


@dataclass(eq=False)
class Reconciler(Generic[_Object, _State]):
    """The task of the leader for one kind of state; restarted whenever this replica leads."""

    connection: Connection
    state: DesiredState[_Object, _State]
    _: KW_ONLY
    may_write: Callable[[], bool]
    clock: MonotonicClock = field(default_factory=MonotonicClock)
    show_drift: Callable[[int], None] = lambda _objects: None

    def __post_init__(self) -> None:
        self._records: dict[Any, _Record] = {}

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._records.clear()
        try:
            while True:
                await self.round()
                await self.clock.sleep(_ROUND_SECONDS)
        finally:
            self.show_drift(0)  # the next leader counts it

    async def round(self) -> None:
        """Write what differs and is due, those objects first that were tried longest ago."""
        now = self.clock.now()
        found = {each.key: each for each in await self.state.objects()}
        self._records = {key: self._records.get(key) or _Record() for key in found}
        differences = list(self._differences(found, now))
        due = [each for each in differences if self._is_due(each, now)]
        due.sort(key=lambda each: (each.record.attempted_at, each.found.key))
        for each in due[: self.state.limits.most_writes]:
            if self.may_write():
                await self._reconcile(each)
        self.show_drift(sum(self._has_drifted(each, now) for each in differences))

    def _differences(
        self, found: Mapping[Any, _Object], now: float
    ) -> Iterator[_Difference[_Object, _State]]:
        for key, each in found.items():
            record = self._records[key]
            # The last write may not have been observed yet.
            is_ahead = (
                record.version > each.version and now - record.attempted_at < _UNOBSERVED_SECONDS
            )
            current = record.written if is_ahead else self.state.current(each)
            desired = self.state.desired(each, current)
            if desired is not None and desired == current:
                if record.is_drift_logged:
                    _log.info("%s is right again", self.state.title(each))
                record.differs_since, record.is_drift_logged = None, False
                continue
            if record.differs_since is None:
                record.differs_since = now
            yield _Difference(each, record, current, desired)

    def _is_due(self, each: _Difference[_Object, _State], now: float) -> bool:
        record, state = each.record, self.state
        pause = record.retry_seconds or state.apart_seconds(each.current, each.desired)
        differs_for = now - (record.differs_since or 0.0)
        return differs_for >= state.limits.settle_seconds and now - record.attempted_at >= pause

    async def _reconcile(self, each: _Difference[_Object, _State]) -> None:
        """Write an object unless it proves to be right; it is tried again when it is due."""
        record, desired = each.record, each.desired
        record.attempted_at = self.clock.now()
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                if desired is None:
                    desired = await self.state.read(each.found, each.current)
                if desired != each.current:
                    path, body = self.state.merge_patch(each.found, each.current, desired)
                    answer = await self.connection.write(
                        "PATCH", path, msgspec.json.encode(body), content_type=MERGE_PATCH
                    )
                    record.version, record.written = _written(answer).metadata.version, desired
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            twice = min(2 * record.retry_seconds, _LONGEST_RETRY_SECONDS)
            record.retry_seconds = twice or _RETRY_SECONDS
            reason = str(error) or "no answer in time"
            _log.debug("%s is not written: %s", self.state.title(each.found), reason)
            return
        record.retry_seconds = 0.0
        record.differs_since = self.clock.now()  # if it differs again, then by something new

    def _has_drifted(self, each: _Difference[_Object, _State], now: float) -> bool:
        """Whether an object has differed for too long; logged once."""
        record = each.record
        if each.desired is None and not record.retry_seconds:
            return False  # it has not been read yet
        pause = self.state.apart_seconds(each.current, each.desired)
        if now - (record.differs_since or 0.0) < pause + _DRIFT_SECONDS:
            return False
        if not record.is_drift_logged:
            record.is_drift_logged = True
            _log.warning("%s stays wrong", self.state.title(each.found))
        return True
