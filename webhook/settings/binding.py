"""Settings of decisions at the moment of binding."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

from engine.model.selector_text import parse_selector_text


class BindingSettings(BaseModel):
    """Decisions at the moment of binding."""

    binding: bool = Field(
        default=False,
        description="Answer /bind: the API server asks, through a webhook on `pods/binding`, where"
        " the scheduler binds a pod to; policies with `placement: { at: Binding }` may name a"
        " better node. The leader alone decides. Without it such policies move no pod.",
    )
    binding_namespaces: str = Field(
        default="stowplan.dev/placement!=disabled",
        description="Label selector of the namespaces whose bindings the API server asks about,"
        " as in the webhook configuration. Bindings in other namespaces without our"
        " answer have not escaped.",
    )

    @field_validator("binding_namespaces")
    @classmethod
    def _selects_namespaces(cls, text: str) -> str:
        parse_selector_text(text)
        return text
