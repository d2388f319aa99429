"""Settings of control: where its leader is found."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from webhook.settings.values import Addresses


class ControlSettings(BaseModel):
    """How the API server finds the leader."""

    leader_service: str | None = Field(
        default=None,
        description="Service without a selector whose EndpointSlices the leader keeps, so that it"
        " leads to the leader. Without it there is none.",
    )
    pod_ips: Addresses = Field(
        default=(),
        description="Addresses of this process, at most one of each IP family, which the leader"
        " writes there; separated by commas in the environment.",
    )

    @model_validator(mode="after")
    def _service_and_address_go_together(self) -> Self:
        if self.leader_service and not self.pod_ips:
            raise ValueError("the leader's Service needs an address of this pod: see `--pod-ips`")
        return self
