"""Settings of control: where its leader is found."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, IPvAnyAddress, model_validator


class ControlSettings(BaseModel):
    """How the API server finds the leader."""

    leader_service: str | None = Field(
        default=None,
        description="Service without a selector that leads to the leader, which keeps its"
        " EndpointSlice of the same name. Without it there is none.",
    )
    pod_ip: IPvAnyAddress | None = Field(
        default=None, description="Address of this process, as the leader writes it there."
    )

    @model_validator(mode="after")
    def _service_and_address_go_together(self) -> Self:
        if self.leader_service and self.pod_ip is None:
            raise ValueError("the leader's Service needs the address of this pod: see `--pod-ip`")
        return self
