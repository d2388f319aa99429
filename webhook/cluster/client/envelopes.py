"""What surrounds objects on the wire: pages of lists, events of watches, refusals.

An object inside stays undecoded at first: in a BOOKMARK it is nearly empty, in an ERROR it is a
Status, and one that cannot be read must not spoil its neighbours.
"""

from __future__ import annotations

import msgspec

from webhook.cluster.decode_errors import UNREADABLE

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Event(msgspec.Struct, gc=False):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class Meta(msgspec.Struct, rename="camel", gc=False):
    """What is needed of the metadata of any object."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, with nothing before the slash where there is no namespace."""
        return f"{self.namespace}/{self.name}"

    @property
    def ends_initial_events(self) -> bool:
        """Whether it is of the bookmark that ends the list at the beginning of a watch."""
        return (self.annotations or {}).get(_INITIAL_EVENTS_END) == "true"


class _Headed(msgspec.Struct, gc=False):
    metadata: Meta


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """What a page says of its list; `token` asks for the next page, empty on the last."""

    resource_version: str = ""
    remaining_item_count: int | None = None  # not told of a list by selectors
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, gc=False):
    """A page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Details(msgspec.Struct, rename="camel", gc=False):
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, rename="camel", gc=False):
    """A refusal."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after_seconds(self) -> float | None:
        """How long we are asked to wait, if so."""
        return self.details.retry_after_seconds if self.details else None


event_of = msgspec.json.Decoder(Event).decode
page_of = msgspec.json.Decoder(Page).decode
status_of = msgspec.json.Decoder(Status).decode
_headed_of = msgspec.json.Decoder(_Headed).decode


def meta_of(raw: msgspec.Raw) -> Meta:
    """Return the metadata of any object; empty where it cannot be read."""
    try:
        return _headed_of(raw).metadata
    except UNREADABLE:
        return Meta()
