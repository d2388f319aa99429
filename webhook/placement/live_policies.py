"""The policies in force, and how a change of their files becomes one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeAlias

from engine.errors import InvalidFileError
from engine.policy import PolicySet, load_policies
from engine.view import PodSumProfile

PlacementMode: TypeAlias = Literal["Enforce", "Audit", "Off"]
"""What policies may do: act as each says, all only tell what they would do, or nothing."""

_DIGEST_BYTES = 16

_log = logging.getLogger(__name__)


class LivePolicies:
    """The last good set of policies; a bad change of their files leaves it in force.

    Args:
        paths: policy files and folders of them.
        track: told the LoadAware profiles of a set before it comes into force, so that the view
            has their sums.
        prepare: told them before that, while the policies before are still in force; what it does
            between two steps must not take long.
        warm_up: told a set once all of its sums are kept, and before reviews are answered by it, so
            that none of them has to wait for what the set works out once; as `prepare`.
        now: the time of day.
        only_audit: whether no policy may act, whatever it says of itself.

    Attributes:
        last_error: why the last reload was in vain; empty when it was not.
        loaded_at: when the policies in force were loaded, or found not to have changed.

    Raises:
        InvalidFileError: the files are wrong at the start, when there is no good set yet.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        track: Callable[[Iterable[PodSumProfile]], None],
        prepare: Callable[[Iterable[PodSumProfile]], Iterable[None]] = lambda _: (),
        warm_up: Callable[[PolicySet], Iterable[None]] = lambda _: (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        only_audit: bool = False,
    ) -> None:
        self._paths = paths
        self._track = track
        self._prepare = prepare
        self._warm_up = warm_up
        self._now = now
        self._only_audit = only_audit
        self.last_error = ""
        self._use(load_policies(paths))

    @property
    def current(self) -> PolicySet:
        """The policies in force."""
        return self._current

    @property
    def digest(self) -> str:
        """What tells the policies in force from others, in hexadecimal digits."""
        told = blake2b(digest_size=_DIGEST_BYTES)
        for policy in self._current:
            told.update(policy.digest)
        return told.hexdigest()

    async def reload(self) -> bool:
        """Load the files again, off the event loop; says whether they could be used."""
        try:
            policies = await asyncio.to_thread(load_policies, self._paths)
        except InvalidFileError as error:
            self.last_error = str(error)
            _log.error("policies not reloaded, the last good ones stay: %s", error)
            return False
        for _ in self._prepare(policies.sum_profiles):
            await asyncio.sleep(0)  # reviews go on
        self._track((*self._current.sum_profiles, *policies.sum_profiles))
        await self._warmed(policies)
        self.last_error = ""
        before = self._current
        self._use(policies)
        _log.info("policies reloaded: %s", "; ".join(_changes(before, policies)) or "no change")
        return True

    async def warm_up(self) -> None:
        """Work out what the policies in force work out once, for when the cluster is known."""
        await self._warmed(self._current)

    async def _warmed(self, policies: PolicySet) -> None:
        for _ in self._warm_up(policies):
            await asyncio.sleep(0)  # reviews go on

    def _use(self, policies: PolicySet) -> None:
        self._track(policies.sum_profiles)
        self._current = policies.in_audit_mode() if self._only_audit else policies
        self.loaded_at = self._now()


def _changes(before: PolicySet, after: PolicySet) -> Iterator[str]:
    """Yield which policies came, went and became others, by name."""
    old, new = ({policy.name: policy.digest for policy in each} for each in (before, after))
    for word, names in (
        ("added", new.keys() - old.keys()),
        ("removed", old.keys() - new.keys()),
        ("changed", {name for name in old.keys() & new.keys() if old[name] != new[name]}),
    ):
        if names:
            yield f"{word} {', '.join(sorted(names))}"
