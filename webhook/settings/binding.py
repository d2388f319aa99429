"""Settings of decisions at the moment of binding."""

from __future__ import annotations

from pydantic import BaseModel, Field


class BindingSettings(BaseModel):
    """Decisions at the moment of binding."""

    binding: bool = Field(
        default=False,
        description="Answer /bind: the API server asks, through a webhook on `pods/binding`, where"
        " the scheduler binds a pod to; policies with `placement: { at: Binding }` may name a"
        " better node. The leader alone decides. Without it such policies move no pod.",
    )
