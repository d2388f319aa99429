"""Args of every Trimaran plugin: the source of upstream's metrics.

Source: scheduler-plugins, apis/config/v1/types.go, TrimaranSpec, and pkg/trimaran/collector.go.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from engine.plugins.base import Args
from engine.plugins.lib.arg_types import Flag

_PROVIDERS = ("KubernetesMetricsServer", "Prometheus", "SignalFx")


class MetricProvider(Args):
    """The source that upstream's embedded load-watcher reads."""

    type: str = ""
    address: str = ""
    token: str = ""
    insecure_skip_verify: Flag | None = None


class TrimaranArgs(Args):
    """TrimaranSpec: accepted and checked as upstream does, and not used.

    Usage comes from the sources of the cluster view, the same for all rules.

    Attributes:
        metric_provider: of the embedded load-watcher.
        watcher_address: of a load-watcher that runs as a service.
    """

    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str = ""

    @model_validator(mode="after")
    def _provider_is_known(self) -> Self:
        provider = self.metric_provider.type
        if provider and not self.watcher_address and provider not in _PROVIDERS:
            raise ValueError(f"invalid `metricProvider.type`, got `{provider}`")
        return self
