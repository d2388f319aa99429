"""Readers of the dashboard: who sent a request, and what they may read."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from webhook.cluster.client.access_reviews import Access, AccessReviews, User
from webhook.cluster.client.connection import ApiError
from webhook.fairness import Shares

LONGEST_TOKEN: Final = 4_000
"""Bytes: a browser keeps no longer cookie."""

_REVIEW_SECONDS: Final = 5.0
_REMEMBERED_SECONDS: Final = 5.0
_MOST_REMEMBERED: Final = 1_024
_MOST_AT_ONCE: Final = 8  # reviews by the API server, for one reader alone

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


class SignInError(Exception):
    """It is not known who sent a request; the text says why."""


class UnavailableError(Exception):
    """It cannot be found out now who sent a request, or what they may read; the text says why.

    Attributes:
        status: of the response.
    """

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Reader(Protocol):
    """Somebody who reads the dashboard."""

    @property
    def name(self) -> str:
        """For people; "" where nobody has to sign in."""

    async def may(self, access: Access) -> bool:
        """Return whether they have a right.

        Raises:
            UnavailableError: it cannot be found out.
        """


def sharer(name: str) -> str:
    """Return who has a share: the service accounts of a namespace have one together."""
    is_account = name.startswith("system:serviceaccount:")
    return name.rpartition(":")[0] if is_account else name


class SignIn(Enum):
    """How a browser gets a token, which it then keeps in a cookie."""

    NONE = auto()  # nobody needs one
    FORM = auto()  # a person gives it
    URL = auto()  # it is in the URL that a person opens


class Readers(Protocol):
    """Tells whose a token is."""

    @property
    def sign_in(self) -> SignIn:
        """How a browser gets it."""

    async def reader(self, token: str) -> Reader:
        """Return whose a token is, which is "" for a request without one.

        Raises:
            SignInError: it is not valid.
            UnavailableError: it cannot be found out.
        """


class Anybody:
    """A reader who may read everything, and all of the readers of a recording."""

    name = ""
    sign_in = SignIn.NONE

    async def may(self, access: Access) -> bool:  # noqa: ARG002 - protocol
        """Return that they have every right."""
        return True

    async def reader(self, token: str) -> Reader:  # noqa: ARG002 - protocol
        """Return such a reader."""
        return self


class TokenOfThisStart:
    """Lets whoever has a token that was made at this start read everything, as Jupyter does.

    Attributes:
        token: the token, in the URL that is printed.
    """

    sign_in = SignIn.URL

    def __init__(self) -> None:
        self.token: Final = secrets.token_urlsafe(32)

    async def reader(self, token: str) -> Reader:
        """Return a reader with every right.

        Raises:
            SignInError: it is another token.
        """
        if not secrets.compare_digest(token.encode(errors="replace"), self.token.encode()):
            raise SignInError("open the URL that `stowplan dashboard` printed: it has the token")
        return Anybody()


class _Remembered(Generic[_Answer]):
    """Answers of the last few seconds, a bounded number of them; None is not remembered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[str, tuple[float, _Answer]] = OrderedDict()

    def latest(self, key: str) -> _Answer | None:
        """Return the answer under a key, however old; None if there was none."""
        found = self._answers.get(key)
        return None if found is None else found[1]

    async def get(self, key: str, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return the answer under a key, asked for if it is too old."""
        found = self._answers.get(key)
        if found is not None and self._clock() - found[0] < _REMEMBERED_SECONDS:
            return found[1]
        answer = await ask()
        if answer is None:
            self._answers.pop(key, None)
            return answer
        self._answers[key] = self._clock(), answer
        self._answers.move_to_end(key)
        while len(self._answers) > _MOST_REMEMBERED:
            self._answers.popitem(last=False)
        return answer


class TokenReaders:
    """Authenticates by TokenReview and authorizes by SubjectAccessReview.

    An answer of the API server is remembered for 5 seconds: a page takes several requests. Tokens
    are remembered by their hash. All of one user share what they may ask of it, and those that were
    never valid, so that neither keeps out a reader who is known.

    Args:
        reviews: by the API server.
        clock: monotonic seconds.
    """

    sign_in = SignIn.FORM

    def __init__(self, reviews: AccessReviews, clock: Callable[[], float]) -> None:
        self._reviews = reviews
        self._users = _Remembered[User | None](clock)
        self._rights = _Remembered[bool](clock)
        self._in_progress = Shares(2 * _MOST_AT_ONCE)  # so one alone may have as many

    async def reader(self, token: str) -> Reader:
        """Return the user of a token.

        Raises:
            SignInError: there is no token, or it is not valid.
            UnavailableError: the API server does not say, or is asked too much.
        """
        if not token:
            raise SignInError("a token is needed: `kubectl create token NAME` makes one")
        if len(token) > LONGEST_TOKEN:
            raise SignInError(f"the token is longer than {LONGEST_TOKEN} bytes")
        digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        known = self._users.latest(digest)
        who = "" if known is None else sharer(known.username)
        ask = lambda: self._ask(who, lambda: self._reviews.user(token))  # noqa: E731
        user = await self._users.get(digest, ask)
        if user is None:
            raise SignInError("the token is not valid, or not any more")
        return _ClusterReader(self, user, digest)

    async def may(self, user: User, digest: str, access: Access) -> bool:
        """Return whether a user has a right.

        Args:
            user: the user.
            digest: of their token.
            access: the right.

        Raises:
            UnavailableError: the API server does not say, or is asked too much.
        """
        who = sharer(user.username)
        ask = lambda: self._ask(who, lambda: self._reviews.may(user, access))  # noqa: E731
        return await self._rights.get(f"{digest} {access!r}", ask)

    async def _ask(self, who: str, review: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return the answer of the API server."""
        if not self._in_progress.has_room(who, 1):
            text = "too many readers at a time"
            raise UnavailableError(HTTPStatus.TOO_MANY_REQUESTS, text)
        self._in_progress.take(who, 1)
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                return await review()
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("a reader of the dashboard cannot be authorized: %s", error)
            text = "the API server does not say who you are and what you may read"
            raise UnavailableError(HTTPStatus.SERVICE_UNAVAILABLE, text) from error
        finally:
            self._in_progress.take(who, -1)


class _ClusterReader:
    """A user of the cluster."""

    def __init__(self, readers: TokenReaders, user: User, digest: str) -> None:
        self._readers = readers
        self._user = user
        self._digest = digest

    @property
    def name(self) -> str:
        return self._user.username

    async def may(self, access: Access) -> bool:
        return await self._readers.may(self._user, self._digest, access)
