from __future__ import annotations

import pytest
from pydantic import ValidationError

from engine.plugins.lib.trimaran_args import TrimaranArgs


def test_a_provider_of_upstream_is_accepted() -> None:
    provider = {"type": "Prometheus", "address": "http://metrics:9090", "insecureSkipVerify": True}
    args = TrimaranArgs.model_validate({"metricProvider": provider, "watcherAddress": None})
    assert args.metric_provider.address == "http://metrics:9090"


def test_an_unknown_provider_is_refused_unless_a_service_stands_in() -> None:
    provider = {"metricProvider": {"type": "Guess"}}
    with pytest.raises(ValidationError, match=r"invalid `metricProvider\.type`, got `Guess`"):
        TrimaranArgs.model_validate(provider)
    TrimaranArgs.model_validate(provider | {"watcherAddress": "http://load-watcher:2020"})
