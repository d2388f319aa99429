"""The policies in force, reloaded when their files change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeAlias

from engine.errors import InvalidFileError
from engine.policy import CompiledPolicy, PolicySet, load_policies
from engine.view import PodSumProfile

PlacementMode: TypeAlias = Literal["Enforce", "Audit", "Off"]
"""Effect of policies: each by its own mode, a report of what all would do, or none."""

WhenWorse: TypeAlias = Literal["Report", "Audit"]
"""What follows where a policy makes things worse: an alert and an Event, or Audit mode as well."""

_DIGEST_BYTES = 16

_log = logging.getLogger(__name__)


class LivePolicies:
    """The last valid set of policies; an invalid change of the files leaves it in force.

    Args:
        paths: policy files and folders of them.
        track: called with the profiles of a set before it comes into force, so that the view keeps
            their sums.
        prepare: called with them before `track`; reviews are decided by the previous set between
            its steps, none of which may take long.
        warm_up: fills the caches of a set after `track` and before reviews are decided by it; in
            steps, like `prepare`.
        now: the time of day.
        only_audit: whether all policies are in Audit mode, whatever their own.
        may_start_empty: whether invalid files at the start leave no policy in force until a reload
            succeeds, instead of raising.

    Attributes:
        is_loaded: whether there was a valid set yet.
        last_error: the error of the last load; empty if it succeeded.
        loaded_at: time of the last successful load.

    Raises:
        InvalidFileError: the files are invalid at the start, and it may not start empty.
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
        may_start_empty: bool = False,
    ) -> None:
        self._paths = paths
        self._track = track
        self._prepare = prepare
        self._warm_up = warm_up
        self._now = now
        self._only_audit = only_audit
        self._audited: Mapping[str, str] = {}
        self.last_error = ""
        self.is_loaded = True
        try:
            self._use(load_policies(paths))
        except InvalidFileError as error:
            if not may_start_empty:
                raise
            self.is_loaded = False
            self.last_error = str(error)
            self._use(PolicySet())
            _log.error(
                "no policy is in force, and this replica not ready, until this is fixed: %s", error
            )

    @property
    def current(self) -> PolicySet:
        """The policies in force."""
        return self._current

    @property
    def digest(self) -> str:
        """Hash of the policies in force, in hexadecimal digits."""
        total = blake2b(digest_size=_DIGEST_BYTES)
        for policy in self._current:
            total.update(policy.digest)
        return total.hexdigest()

    def keep_in_audit(self, digests: Mapping[str, str]) -> None:
        """Keep policies in Audit mode, whatever their files say, and no others.

        Args:
            digests: of the policies, in hexadecimal digits, by name. One that has another digest by
                now was changed by somebody, and acts by its own mode again.
        """
        if digests == self._audited:
            return
        self._audited = dict(digests)
        self._current = self._loaded.in_audit_mode(self._is_audited)

    def _is_audited(self, policy: CompiledPolicy) -> bool:
        return self._only_audit or self._audited.get(policy.name) == policy.digest.hex()

    async def reload(self) -> bool:
        """Load the files again, off the event loop; return whether they are valid."""
        try:
            policies = await asyncio.to_thread(load_policies, self._paths)
        except InvalidFileError as error:
            self.last_error = str(error)
            stay = "the last valid ones stay in force" if self.is_loaded else "none is in force"
            _log.error("policies not reloaded, %s: %s", stay, error)
            return False
        for _ in self._prepare(policies.sum_profiles):
            await asyncio.sleep(0)  # reviews go on
        self._track((*self._current.sum_profiles, *policies.sum_profiles))
        await self._run_warm_up(policies)
        self.is_loaded, self.last_error = True, ""
        before = self._current
        self._use(policies)
        _log.info("policies reloaded: %s", "; ".join(_changes(before, policies)) or "no change")
        return True

    async def warm_up(self) -> None:
        """Fill the caches of the policies in force, once the cluster is synced."""
        await self._run_warm_up(self._current)

    async def _run_warm_up(self, policies: PolicySet) -> None:
        for _ in self._warm_up(policies):
            await asyncio.sleep(0)  # reviews go on

    def _use(self, policies: PolicySet) -> None:
        self._track(policies.sum_profiles)
        self._loaded = policies
        self._current = policies.in_audit_mode(self._is_audited)
        self.loaded_at = self._now()


def _changes(before: PolicySet, after: PolicySet) -> Iterator[str]:
    """Yield the policies that were added, removed and changed, by name."""
    old, new = ({policy.name: policy.digest for policy in policies} for policies in (before, after))
    for change, names in (
        ("added", new.keys() - old.keys()),
        ("removed", old.keys() - new.keys()),
        ("changed", {name for name in old.keys() & new.keys() if old[name] != new[name]}),
    ):
        if names:
            yield f"{change} {', '.join(sorted(names))}"
