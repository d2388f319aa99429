"""What reclaim has done so far, in a ConfigMap: the guards hold across leaders.

It is written before anything is evicted. So whoever leads next knows each eviction that was sent,
and maybe some that were not.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from engine.reclaim import GuardState
from webhook.cluster.client.config_map import ConfigMapStore
from webhook.cluster.decode_errors import UNREADABLE

_KEY: Final = "guards.json"

_log = logging.getLogger(__name__)


class GuardRecord:
    """Reads and writes what reclaim has done so far.

    Args:
        config_map: that it is in.
    """

    def __init__(self, config_map: ConfigMapStore) -> None:
        self._config_map = config_map

    async def read(self) -> GuardState:
        """Return what was written last; nothing where there is none, or none that can be read.

        Raises:
            ApiError: it was refused, or there was no answer.
        """
        data = (await self._config_map.read()).data
        try:
            return msgspec.json.decode(data.get(_KEY, "{}"), type=GuardState)
        except UNREADABLE as error:
            name = self._config_map.name
            _log.warning("ConfigMap `%s` cannot be read, and is begun anew: %s", name, error)
            return GuardState()

    async def write(self, state: GuardState) -> None:
        """Replace what was written.

        Raises:
            ApiError: it was refused, there was no answer, or this replica does not lead.
        """
        await self._config_map.write({_KEY: msgspec.json.encode(state).decode()})
