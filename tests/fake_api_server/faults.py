"""What can go wrong between a client and its API server, at a test's wish."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fake_api_server.statuses import ApiFault

CUT_CONNECTION = 0
"""As the status of a failure: no answer at all, the connection breaks."""


@dataclass(slots=True)
class _Failure:
    """Requests still to be failed."""

    left: int
    status: int
    headers: Mapping[str, str]
    method: str
    path_prefix: str
    message: str

    def meets(self, method: str, path: str) -> bool:
        return self.left > 0 and self.method in {"", method} and path.startswith(self.path_prefix)


@dataclass(slots=True)
class Faults:
    """The faults that are on.

    Attributes:
        running: cleared, nothing is answered and no stream says anything.
        refuse_watch_list: the status `sendInitialEvents` is refused with (servers without the
            WatchList feature say 422, before 1.27 400); 0 accepts it.
        unmarked_watch_list: a watch list never gets the bookmark that ends its initial events.
        gone_in_stream: a watch from a forgotten version is told so by an ERROR event; otherwise by
            HTTP status 410.
        bodies_to_cut: so many of the next answers break off in the middle of their body.
        token: the bearer token to show; None asks for none.
    """

    running: asyncio.Event = field(default_factory=asyncio.Event)
    refuse_watch_list: int = 0
    unmarked_watch_list: bool = False
    gone_in_stream: bool = True
    bodies_to_cut: int = 0
    token: str | None = None
    _failures: list[_Failure] = field(default_factory=list)
    _delays: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.running.set()

    def fail(
        self,
        count: int,
        status: int,
        headers: Mapping[str, str],
        method: str,
        path_prefix: str,
        message: str,
    ) -> None:
        """Refuse the next `count` requests of a method and path; empty means any.

        The method of a watch is WATCH.
        """
        if status == 429:
            headers = {"Retry-After": "1", **headers}
        self._failures.append(_Failure(count, status, headers, method, path_prefix, message))

    def delay(self, seconds: float, path_prefix: str) -> None:
        """Answer requests for such paths later; 0 ends it."""
        self._delays[path_prefix] = seconds

    def recover(self) -> None:
        """End every failure, delay and pause."""
        self.bodies_to_cut = 0
        self._failures.clear()
        self._delays.clear()
        self.running.set()

    async def before_answer(self, method: str, path: str, authorization: str) -> None:
        """Let a request through, or not, or later.

        Raises:
            ApiFault: it is refused; code `CUT_CONNECTION` cuts the connection.
        """
        await self.running.wait()
        seconds = max(
            (s for prefix, s in self._delays.items() if path.startswith(prefix)), default=0
        )
        if seconds:
            await asyncio.sleep(seconds)
        for failure in self._failures:
            if failure.meets(method, path):
                failure.left -= 1
                raise ApiFault(failure.status, failure.message, headers=failure.headers)
        if self.token is not None and authorization != f"Bearer {self.token}":
            raise ApiFault(401, "Unauthorized")

    def takes_body_cut(self) -> bool:
        """Return whether this answer's body is to break off."""
        if not self.bodies_to_cut:
            return False
        self.bodies_to_cut -= 1
        return True
