"""Figures and policies in Audit mode, in a ConfigMap: they outlive the leader.

The leader alone writes the figures. Which policies are in Audit mode for what they did, an operator
may write as well: taking a name out there is how a policy gets back into force.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from engine.outcome import WindowState
from engine.report import AuditedPolicy, OutcomeReport
from webhook.cluster.client.config_map import ConfigMapStore
from webhook.cluster.client.connection import ApiError
from webhook.cluster.decode_errors import UNREADABLE

WINDOW_KEY: Final = "window.json"
REPORT_KEY: Final = "report.json"
AUDITED_KEY: Final = "audited.json"

_Part = TypeVar("_Part")

_log = logging.getLogger(__name__)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the ConfigMap holds.

    Attributes:
        window: figures, for the next leader.
        report: the same for people; None before the first.
        audited: policies in Audit mode for what they did, by name.
        version: resourceVersion of the ConfigMap, "" where there is none.
        uid: of the ConfigMap.
    """

    window: WindowState = WindowState()
    report: OutcomeReport | None = None
    audited: Mapping[str, AuditedPolicy] = {}
    version: str = ""
    uid: str = ""


class OutcomeRecord:
    """Reads and writes what the leader knows of outcomes.

    Args:
        config_map: that it is in.
    """

    def __init__(self, config_map: ConfigMapStore) -> None:
        self.config_map: Final = config_map

    async def read(self) -> Recorded:
        """Return what was written last; what cannot be read is left out.

        Raises:
            ApiError: it was refused, or there was no answer.
        """
        config_map = await self.config_map.read()
        data = config_map.data
        audited = _read(data, AUDITED_KEY, dict[str, AuditedPolicy]) or {}
        report = _read(data, REPORT_KEY, OutcomeReport)
        return Recorded(
            window=_read(data, WINDOW_KEY, WindowState) or WindowState(),
            report=None if report is None else msgspec.structs.replace(report, audited=audited),
            audited=audited,
            version=config_map.metadata.resource_version,
            uid=config_map.metadata.uid,
        )

    async def report(self, window_seconds: int) -> OutcomeReport:
        """Return the figures that the leader wrote last; empty ones where they cannot be read.

        Args:
            window_seconds: of a report without figures.
        """
        try:
            recorded = await self.read()
        except ApiError as error:
            _log.warning("no figures of the leader: %s", error)
            recorded = Recorded()
        return recorded.report or OutcomeReport(window_seconds=window_seconds)

    async def write(self, data: Mapping[str, object], version: str = "") -> None:
        """Replace some of its parts, by key.

        Args:
            data: values by key, to be encoded as JSON.
            version: resourceVersion that it must still have; "" for any.

        Raises:
            ApiError: it was refused or changed meanwhile, there was no answer, or this replica does
                not lead.
        """
        texts = {key: msgspec.json.encode(value).decode() for key, value in data.items()}
        await self.config_map.write(texts, version)


def _read(data: Mapping[str, str], key: str, kind: type[_Part]) -> _Part | None:
    text = data.get(key)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        _log.warning("`%s` cannot be read, and is begun anew: %s", key, error)
        return None
