"""Pseudonyms in place of the names that people gave.

Every text becomes a pseudonym, a keyed hash of it, unless it is a public name of Kubernetes (see
`public_names`) or a figure. Equal texts become equal pseudonyms, so references stay intact: from a
pod to its node, a label `kubernetes.io/hostname` to its node, a selector to labels, a report to its
pods. The key is random and never stored.

Amounts, times, priorities, the order of objects and the equality of texts stay. The order by name
is lost, and so are `Gt` and `Lt` on labels that are not public.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

import msgspec

from engine.model import api
from engine.model.advice import ADVICE_ANNOTATION, MOST_NODES, Advice, advice_in
from engine.model.eviction import (
    DO_NOT_DISRUPT_ANNOTATION,
    SAFE_TO_EVICT_ANNOTATION,
    SAFE_VOLUMES_ANNOTATION,
)
from engine.model.pod import MIRROR_ANNOTATION
from engine.model.resource_names import is_huge_pages
from webhook.cluster.decode_errors import UNREADABLE
from webhook.cluster.snapshot.public_names import (
    PUBLIC_DOMAINS,
    PUBLIC_KEYS,
    PUBLIC_VALUES,
    PUBLIC_WORDS,
    READ_ANNOTATIONS,
)

_Change: TypeAlias = Callable[[Any], Any]
_T = TypeVar("_T", bound=msgspec.Struct)

_KEY_BYTES = 32
_PSEUDONYM_BYTES = 10  # 80 bits, 16 letters: no two of a million are likely to be equal
_CACHED_PSEUDONYMS = 1 << 16
_FIGURE = re.compile(
    r"[+-]?[0-9.]{1,40}(?:%|[eE][+-]?[0-9]{1,3}|[numkKMGTPE]i?"
    r"|(?:ns|us|µs|ms|s|m|h)(?:[0-9.]{1,20}(?:ns|us|µs|ms|s|m|h)){0,5})?"
)
"""A quantity, a duration, a percentage or a number."""

_FIGURES = frozenset({"duration", "resource_version", "window"})
"""Fields that hold figures."""

_LABEL_KEYS = frozenset({"match_label_keys", "mismatch_label_keys", "topology_key"})
"""Fields that hold keys of labels."""

_IMAGES = frozenset({"image", "names", "reference"})
"""Fields that name images, of containers, of nodes and of volumes."""


class Anonymizer:
    """Replaces names by pseudonyms, equal ones by equal ones.

    Args:
        secret: key of the hash; a random one if not given.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(_KEY_BYTES) if secret is None else secret
        self._hash = lru_cache(_CACHED_PSEUDONYMS)(self._new_hash)
        self._plans: dict[type[msgspec.Struct], tuple[tuple[str, _Change], ...]] = {}
        self._special: Mapping[type[msgspec.Struct], _Change] = {
            api.Taint: self._keyed,
            api.Toleration: self._keyed,
            api.SelectorRequirement: self._requirement,
            api.Attribute: self._attribute,
            api.TopologyCosts: self._costs,
            api.ZoneResource: self._zone_resource,
            api.DeviceClassSpec: self._device_class,
        }

    def pseudonym(self, text: str) -> str:
        """Return the pseudonym of a text, or the text itself if it is public."""
        return text if not text or text in PUBLIC_WORDS else self._hash(text)

    def key(self, text: str) -> str:
        """Return the pseudonym of the key of a label or a taint, or of the name of a resource.

        It has a prefix if the key has one, and Kubernetes' own prefixes keep their end.
        """
        if not text or text in PUBLIC_KEYS or is_huge_pages(text):
            return text
        prefix, slash, name = text.rpartition("/")
        if not slash:
            return self._hash(name)
        end = next((end for end in PUBLIC_DOMAINS if f".{prefix}".endswith(f".{end}")), "")
        if prefix != end:
            prefix = f"{self._hash(prefix)}.{end}" if end else self._hash(prefix)
        return f"{prefix}/{self._hash(name)}"

    def struct(self, wire: _T) -> _T:
        """Return an object without names."""
        kind = type(wire)
        special = self._special.get(kind)
        if special is not None:
            anonymous: _T = special(wire)
            return anonymous
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = tuple(self._plan(kind))
        return kind(**{name: change(getattr(wire, name)) for name, change in plan})

    def _new_hash(self, text: str) -> str:
        digest = blake2b(text.encode(), digest_size=_PSEUDONYM_BYTES, key=self._secret).digest()
        return base64.b32encode(digest).decode().lower()

    def _plan(self, kind: type[msgspec.Struct]) -> list[tuple[str, _Change]]:
        """Return the change of each field; unknown fields become pseudonyms."""
        return [
            (field.name, self._change(field.name, field.type))
            for field in msgspec.structs.fields(kind)
        ]

    def _change(self, name: str, declared: object) -> _Change:
        if name in _FIGURES:
            return self._figure
        if name in _LABEL_KEYS:
            return self._keys
        if name in _IMAGES:
            return self._images
        if name == "annotations":
            return self._annotations
        if declared == api.Quantity:
            return self._amount
        if declared == api.ResourceList | None:
            return self._amounts
        return self._labels if declared == dict[str, str] | None else self._names

    def _names(self, value: Any) -> Any:  # noqa: ANN401 - any value in a wire struct
        if isinstance(value, str):
            return self.pseudonym(value)
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self._names, value))
        if isinstance(value, dict):
            return {self.pseudonym(name): self._names(inner) for name, inner in value.items()}
        if value is None or isinstance(value, int | float | datetime):
            return value
        raise AssertionError("a value of this type has no pseudonym yet")

    def _keys(self, value: str | list[str] | None) -> str | list[str] | None:
        """Return the pseudonyms of keys of labels."""
        return list(map(self.key, value)) if isinstance(value, list) else value and self.key(value)

    def _images(self, value: Any) -> Any:  # noqa: ANN401 - a name, names, or a volume's image
        """Return pseudonyms of images, where no tag means `latest`."""
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, tuple):
            return tuple(map(self._image, value))
        return value and self._image(value)

    def _image(self, name: str) -> str:
        tagged = name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
        return f"{self._hash(tagged)}:0"

    def _figure(self, text: str) -> str:
        return text if _FIGURE.fullmatch(text) else self.pseudonym(text)

    def _amount(self, amount: api.Quantity) -> api.Quantity:
        return self._figure(amount) if isinstance(amount, str) else amount

    def _amounts(self, amounts: api.ResourceList | None) -> api.ResourceList | None:
        if amounts is None:
            return None
        return {self.key(name): self._amount(amount) for name, amount in amounts.items()}

    def _labels(self, labels: dict[str, str] | None) -> dict[str, str] | None:
        if labels is None:
            return None
        return {self.key(key): self._value(key, value) for key, value in labels.items()}

    def _value(self, key: str, value: str) -> str:
        return value if key in PUBLIC_VALUES else self.pseudonym(value)

    def _keyed(self, wire: api.Taint | api.Toleration) -> api.Taint | api.Toleration:
        return msgspec.structs.replace(
            wire,
            key=self.key(wire.key),
            value=self._value(wire.key, wire.value),
            effect=self.pseudonym(wire.effect),
            **(
                {"operator": self.pseudonym(wire.operator)}
                if isinstance(wire, api.Toleration)
                else {}
            ),
        )

    def _requirement(self, wire: api.SelectorRequirement) -> api.SelectorRequirement:
        return api.SelectorRequirement(
            key=self.key(wire.key),
            operator=self.pseudonym(wire.operator),
            values=wire.values and [self._value(wire.key, value) for value in wire.values],
        )

    def _attribute(self, wire: api.Attribute) -> api.Attribute:
        return api.Attribute(name=self.pseudonym(wire.name), value=self._figure(wire.value))

    def _zone_resource(self, wire: api.ZoneResource) -> api.ZoneResource:
        available = self._amount(wire.available)
        return api.ZoneResource(name=self.key(wire.name), available=available)

    def _device_class(self, wire: api.DeviceClassSpec) -> api.DeviceClassSpec:
        return api.DeviceClassSpec(
            extended_resource_name=self.key(wire.extended_resource_name or "")
        )

    def _costs(self, wire: api.TopologyCosts) -> api.TopologyCosts:
        """Return costs between places, which have the names in the labels of nodes."""
        label = wire.topology_key
        origins = [
            api.OriginCosts(
                origin=self._value(label, origin.origin),
                cost_list=[
                    api.DestinationCost(
                        destination=self._value(label, cost.destination),
                        network_cost=cost.network_cost,
                    )
                    for cost in origin.cost_list or ()
                ],
            )
            for origin in wire.origin_list or ()
        ]
        return api.TopologyCosts(topology_key=self.key(label), origin_list=origins)

    # Annotations.

    def _annotations(self, annotations: dict[str, str] | None) -> dict[str, str] | None:
        """Return those that plugins or this webhook read; expressions may read others."""
        anonymous = {}
        for name, text in (annotations or {}).items():
            if name in READ_ANNOTATIONS:
                anonymous[name] = self._figures_in(text)
            elif name in (SAFE_TO_EVICT_ANNOTATION, DO_NOT_DISRUPT_ANNOTATION):
                anonymous[name] = str(text == "true").lower()
            elif name == SAFE_VOLUMES_ANNOTATION:
                anonymous[name] = ",".join(map(self.pseudonym, text.split(",")))
            elif name == MIRROR_ANNOTATION:
                anonymous[name] = self.pseudonym(text)
            elif name == ADVICE_ANNOTATION:
                anonymous |= self._advice(annotations or {})
        return anonymous or None

    def _advice(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """Return the parts of an advice that tell where its pod is assumed to go."""
        advice = advice_in(annotations)
        if advice is None:
            return {}
        anonymous = Advice(
            nodes=tuple(map(self.pseudonym, advice.nodes[:MOST_NODES])),
            candidates=advice.candidates,
            id=self.pseudonym(advice.id),
            terms=advice.terms,
        )
        return {ADVICE_ANNOTATION: msgspec.json.encode(anonymous).decode()}

    def _figures_in(self, text: str) -> str:
        """Return a number, or JSON of figures by resource; a malformed text stays malformed."""
        if _FIGURE.fullmatch(text):
            return text
        try:
            value = msgspec.json.decode(text)
        except UNREADABLE:
            return self.pseudonym(text)
        return msgspec.json.encode(self._json(value)).decode()

    def _json(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {
                name if name in PUBLIC_WORDS else self.key(name): self._json(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._json(inner) for inner in value]
        if not isinstance(value, str):
            return value
        return value if value in PUBLIC_WORDS or _FIGURE.fullmatch(value) else self.key(value)
