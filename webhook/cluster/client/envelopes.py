"""Envelopes of objects on the wire: pages of lists, events of watches, refusals.

Objects inside stay undecoded at first: in a BOOKMARK one is nearly empty, in an ERROR it is a
Status, and an unreadable one must not affect others.
"""

from __future__ import annotations

import msgspec

from webhook.cluster.objects import UNREADABLE, shallow

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class Meta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of any object that list and watch need."""

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
        """Whether it belongs to the bookmark that ends the list at the start of a watch."""
        return (self.annotations or {}).get(_INITIAL_EVENTS_END) == "true"


class _Headed(msgspec.Struct, gc=False):
    metadata: Meta


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """Metadata of a page; `token` requests the next page and is empty on the last."""

    resource_version: str = ""
    remaining_item_count: int | None = None  # absent where a selector is used
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, gc=False):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Details(msgspec.Struct, rename="camel", gc=False):
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, rename="camel", gc=False):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after_seconds(self) -> float | None:
        """The wait that the server asks for, if it does."""
        return self.details.retry_after_seconds if self.details else None


_event_of = msgspec.json.Decoder(Event).decode
_page_of = msgspec.json.Decoder(Page).decode


def event_of(line: bytes) -> Event:
    try:
        return _event_of(line)
    except RecursionError:
        return _event_of(shallow(line))


def page_of(body: bytes) -> Page:
    try:
        return _page_of(body)
    except RecursionError:
        return _page_of(shallow(body))


status_of = msgspec.json.Decoder(Status).decode
_headed_of = msgspec.json.Decoder(_Headed).decode


def meta_of(raw: msgspec.Raw) -> Meta:
    """Return the metadata of any object; empty where it cannot be read."""
    try:
        return _headed_of(raw).metadata
    except UNREADABLE:
        return Meta()
