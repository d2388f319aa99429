"""PodState: final scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.plugins import Cycle
from engine.plugins.pod_state import PodStateScore
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _score(case: Json, _: Json) -> str | None:
    view, rule = cluster_of(case), PodStateScore()
    raw = rule.score(Cycle(incoming(case), view, NOW)).values
    columns = {"raw": raw, "score": rule.normalize(raw)}
    got = {
        key: dict(zip(view.names, values.tolist(), strict=True)) for key, values in columns.items()
    }
    return mismatch(case["expect"], {key: got.get(key) for key in case["expect"]})


STAGES: Mapping[str, Stage] = {"score": _score}
