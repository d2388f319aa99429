"""The policies in force: those of files and those of the API, joined."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from engine.policy import CompiledPolicy, PolicySet
from engine.view import PodSumProfile
from webhook.placement.policy_files import PolicyFiles
from webhook.placement.policy_resources import PolicyResources, ResourceStanding

PlacementMode: TypeAlias = Literal["Enforce", "Audit", "Off"]
"""Effect of policies: each by its own mode, a report of what all would do, or none."""

WhenWorse: TypeAlias = Literal["Report", "Audit"]
"""What follows where a policy makes things worse: an alert and an Event, or Audit mode as well."""

_DIGEST_BYTES = 16
_TOGETHER_SECONDS: Final = 0.2  # changes that come within it are taken up together
_APART_SECONDS: Final = 0.8  # between two times: the columns of new policies take a while to fill
_LOOK_SECONDS: Final = 0.25  # between two looks for changed nodes
_REST: Final = 20  # times as long as their columns took: a twentieth of a processor at most

_log = logging.getLogger(__name__)


class WatchedCluster(Protocol):
    """A cluster whose nodes change; see `webhook.cluster.Cluster`."""

    async def synced(self) -> None: ...  # noqa: D102 (see the class)
    def nodes_version(self) -> int: ...  # noqa: D102


class LivePolicies:
    """The policies in force: of files the last valid set, of the API each that is accepted.

    Args:
        paths: policy files and folders of them.
        resources: the policies of the API; None where none are taken.
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
        loaded_at: when policies last came into force.

    Raises:
        InvalidFileError: the files are invalid at the start, and it may not start empty.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        paths: Sequence[Path],
        *,
        resources: PolicyResources | None = None,
        track: Callable[[Iterable[PodSumProfile]], None],
        prepare: Callable[[Iterable[PodSumProfile]], Iterable[None]] = lambda _: (),
        warm_up: Callable[[PolicySet], Iterable[None]] = lambda _: (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        only_audit: bool = False,
        may_start_empty: bool = False,
    ) -> None:
        self._files = PolicyFiles(paths, may_start_empty=may_start_empty)
        self._resources = resources
        self._track = track
        self._prepare = prepare
        self._warm_up = warm_up
        self._now = now
        self._only_audit = only_audit
        self._audited: Mapping[str, str] = {}
        self._switching = asyncio.Lock()
        self._has_resources = resources is None
        self._use(self._files.current)

    @property
    def current(self) -> PolicySet:
        """The policies in force."""
        return self._current

    @property
    def is_loaded(self) -> bool:
        """Whether the files were valid once, and the policies of the API were taken up once."""
        return self._files.is_loaded and self._has_resources

    @property
    def last_error(self) -> str:
        """The error of the last load of files; empty if it succeeded."""
        return self._files.last_error

    @property
    def file_names(self) -> frozenset[str]:
        """Names of the policies in files, which none of the API can have."""
        return frozenset(policy.name for policy in self._files.current)

    @property
    def standings(self) -> tuple[ResourceStanding, ...]:
        """What became of each policy of the API."""
        return () if self._resources is None else self._resources.standings(self.file_names)

    def cost_of_others(self, namespace: str, name: str) -> int:
        """Return what the policies of the API for a namespace cost, without the one of a name."""
        return sum(
            each.policy.cost
            for each in self.standings
            if each.policy is not None
            and each.resource.namespace == namespace
            and each.resource.name != name
        )

    @property
    def digest(self) -> str:
        """Hash of the policies in force, in hexadecimal digits."""
        total = blake2b(digest_size=_DIGEST_BYTES)
        for policy in self._current:
            total.update(policy.digest)
        return total.hexdigest()

    def keep_in_audit(self, digests: Mapping[str, str]) -> None:
        """Keep policies in Audit mode, whatever they say themselves, and no others.

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
        loaded = await self._files.load()
        if loaded is None:
            return False
        async with self._switching:
            await self._switch(loaded)
        return True

    async def follow_resources(self) -> None:
        """Take up the policies of the API, and what changes of them; until cancelled."""
        resources = self._resources
        if resources is None:
            return
        while True:
            try:
                await self.take_up(resources)
            except Exception:  # noqa: BLE001 - a bug must not end it: later changes must be seen
                _log.exception("policies of the API could not be taken up")
            await asyncio.sleep(_APART_SECONDS)
            await resources.changed.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)

    async def take_up(self, resources: PolicyResources) -> None:
        """Compile what has changed of the policies of the API, and let it come into force."""
        await resources.compile_changed()
        async with self._switching:
            await self._switch(self._files.current)
        self._has_resources = True

    async def warm_up(self) -> float:
        """Fill the caches of the policies in force, once the cluster is synced.

        Returns:
            The seconds that it took, without the reviews in between.
        """
        return await self._run_warm_up(self._current)

    async def follow_nodes(self, cluster: WatchedCluster) -> None:
        """Fill the caches again whenever nodes have changed; never returns.

        Otherwise the first decision after a node came would.
        """
        await cluster.synced()
        filled = 0
        while True:
            nodes, took = cluster.nodes_version(), 0.0
            if nodes != filled:
                filled, took = nodes, await self.warm_up()
            await asyncio.sleep(max(_LOOK_SECONDS, _REST * took))

    async def _switch(self, of_files: PolicySet) -> None:
        """Join policies of files with those of the API, and let reviews be decided by them."""
        policies = PolicySet((*of_files, *self._of_resources(of_files)))
        changes = "; ".join(_changes(self._loaded, policies))
        if not changes and of_files is self._files.current:
            return
        for _ in self._prepare(policies.sum_profiles):
            await asyncio.sleep(0)  # reviews go on
        self._track((*self._current.sum_profiles, *policies.sum_profiles))
        await self._run_warm_up(policies)
        if of_files is not self._files.current:
            self._files.use(of_files)
        self._use(policies)
        _log.info("policies reloaded: %s", changes or "no change")

    def _of_resources(self, of_files: PolicySet) -> Iterator[CompiledPolicy]:
        if self._resources is not None:
            names = frozenset(policy.name for policy in of_files)
            for standing in self._resources.standings(names):
                if standing.policy is not None:
                    yield standing.policy

    async def _run_warm_up(self, policies: PolicySet) -> float:
        took, begun = 0.0, time.monotonic()
        for _ in self._warm_up(policies):
            took += time.monotonic() - begun
            await asyncio.sleep(0)  # reviews go on
            begun = time.monotonic()
        return took

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
