"""Pods that are hard to read: what their creators may write, and few do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from tests.e2e.cluster import Json


def _limited(amount: str) -> Callable[[Json], None]:
    def limit_storage(obj: Json) -> None:
        obj["spec"]["containers"][0]["resources"]["limits"] = {"ephemeral-storage": amount}

    return limit_storage


def _requests(amounts: Mapping[str, str]) -> Callable[[Json], None]:
    def request(obj: Json) -> None:
        obj["spec"]["containers"][0]["resources"]["requests"] |= amounts

    return request


def _nests(obj: Json) -> None:
    entry = {
        "manager": "tenant",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:nested": {}},
    }
    obj["metadata"]["managedFields"] = [entry]


def text_of(obj: Json) -> str:
    """Return an object as JSON; what nests does so deeply."""
    depth = 3_000
    nested = '{"f:nested":' * depth + "{}" + "}" * depth
    return json.dumps(obj).replace('{"f:nested": {}}', nested)


def _grows_on_the_wire(obj: Json) -> None:
    """Add a text that is six times as long in a review, where each character is escaped."""
    obj["spec"]["containers"][0]["env"] = [{"name": "TEXT", "value": "<" * 1_400_000}]


def _has_many_containers(obj: Json) -> None:
    """Add containers; a review of so many is judged in a thread, and so is the watch's event."""
    container = obj["spec"]["containers"][0]
    more = {"image": container["image"], "resources": {"requests": {"cpu": "1m", "memory": "1"}}}
    obj["spec"]["containers"] += [{"name": f"more-{number}", **more} for number in range(5_000)]


TRICKS: Final[Mapping[str, Callable[[Json], None]]] = {
    "limit-of-103-digits": _limited("1e103"),
    "limit-of-129-digits": _limited("9" * 129),
    "request-of-103-digits": _requests({"cpu": "1e103"}),
    "exponent-beyond-32-bits": _requests({"cpu": "1e-4294967293"}),
    "nests-deeply": _nests,
    "grows-on-the-wire": _grows_on_the_wire,
    "has-5000-containers": _has_many_containers,
}
"""Change a pod, by what it is then."""
