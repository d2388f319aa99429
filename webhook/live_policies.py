"""The policies in force, and how a change of their files becomes one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from engine.errors import InvalidFileError
from engine.policy import PolicySet, load_policies
from engine.view import LoadProfile

_log = logging.getLogger(__name__)


class LivePolicies:
    """The last good set of policies; a bad change of their files leaves it in force.

    Args:
        paths: policy files and folders of them.
        track: told the LoadAware profiles of a set before it comes into force, so that the view
            has their sums.

    Raises:
        InvalidFileError: the files are wrong at the start, when there is no good set yet.
    """

    def __init__(
        self, paths: Sequence[Path], *, track: Callable[[Iterable[LoadProfile]], None]
    ) -> None:
        self._paths = paths
        self._track = track
        self.last_error = ""
        self._use(load_policies(paths))

    @property
    def current(self) -> PolicySet:
        """The policies in force."""
        return self._current

    async def reload(self) -> bool:
        """Load the files again, off the event loop; says whether they could be used."""
        try:
            policies = await asyncio.to_thread(load_policies, self._paths)
        except InvalidFileError as error:
            self.last_error = str(error)
            _log.error("policies not reloaded, the last good ones stay: %s", error)
            return False
        self.last_error = ""
        self._use(policies)
        _log.info("policies reloaded")
        return True

    def _use(self, policies: PolicySet) -> None:
        self._track(policies.load_profiles)
        self._current = policies
