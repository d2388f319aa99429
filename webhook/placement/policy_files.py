"""The policies of files: the last valid set of them, all or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from engine.errors import InvalidFileError
from engine.policy import PolicySet, load_policies

_log = logging.getLogger(__name__)


class PolicyFiles:
    """Policy files that may change; an invalid change leaves the last valid set.

    Args:
        paths: files and folders of them.
        may_start_empty: whether invalid files at the start mean no policy until a reload succeeds,
            instead of raising.

    Attributes:
        current: the last valid set.
        is_loaded: whether there was a valid set yet.
        last_error: the error of the last load; empty if it succeeded.

    Raises:
        InvalidFileError: the files are invalid at the start, and it may not start empty.
    """

    def __init__(self, paths: Sequence[Path], *, may_start_empty: bool = False) -> None:
        self._paths = paths
        self.last_error = ""
        self.is_loaded = True
        try:
            self.current = load_policies(paths)
        except InvalidFileError as error:
            if not may_start_empty:
                raise
            self.current = PolicySet()
            self.is_loaded = False
            self.last_error = str(error)
            _log.error(
                "no policy is in force, and this replica not ready, until this is fixed: %s", error
            )

    async def load(self) -> PolicySet | None:
        """Load the files again, off the event loop; return their policies, None if invalid."""
        try:
            return await asyncio.to_thread(load_policies, self._paths)
        except InvalidFileError as error:
            self.last_error = str(error)
            stay = "the last valid ones stay in force" if self.is_loaded else "none is in force"
            _log.error("policies not reloaded, %s: %s", stay, error)
            return None

    def use(self, policies: PolicySet) -> None:
        """Take the policies that were loaded as the valid ones."""
        self.current, self.is_loaded, self.last_error = policies, True, ""
