"""Label and field selectors, over objects kept as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from tests.fake_api_server.resources import Resource
from tests.fake_api_server.statuses import ApiFault


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    unschedulable: bool = False


class _Status(msgspec.Struct):
    phase: str = ""


class _Facts(msgspec.Struct):
    """All that selectors can ask of an object."""

    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None
    type: str = ""
    reason: str = ""


Selector = Callable[[bytes], bool]
_Test = Callable[[_Facts], bool]

_FIELDS: dict[str, Callable[[_Facts], str]] = {
    "metadata.name": lambda facts: facts.metadata.name,
    "metadata.namespace": lambda facts: facts.metadata.namespace,
    "spec.nodeName": lambda facts: facts.spec.node_name if facts.spec else "",
    "spec.schedulerName": lambda facts: facts.spec.scheduler_name if facts.spec else "",
    "spec.unschedulable": lambda facts: str(bool(facts.spec and facts.spec.unschedulable)).lower(),
    "status.phase": lambda facts: facts.status.phase if facts.status else "",
    "type": lambda facts: facts.type,
    "reason": lambda facts: facts.reason,
}
_EQUALITY = re.compile(r"^\s*([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)\s*$")
_EXISTENCE = re.compile(r"^\s*(!?)\s*([\w./-]+)\s*$")


def selector_of(resource: Resource, fields: str, labels: str) -> Selector | None:
    """Return whether an object is selected; None where everything is.

    Set-based label requirements (`in`, `notin`) are refused.

    Raises:
        ApiFault: 400, for a selector that cannot be read or a field the resource does not offer.
    """
    tests = [_field_test(resource, term) for term in fields.split(",") if term]
    tests += [_label_test(term) for term in labels.split(",") if term]
    if not tests:
        return None
    decode = msgspec.json.Decoder(_Facts).decode

    def selected(body: bytes) -> bool:
        facts = decode(body)
        return all(test(facts) for test in tests)

    return selected


def _field_test(resource: Resource, term: str) -> _Test:
    match = _EQUALITY.match(term)
    if not match:
        raise ApiFault(400, f"invalid field selector: {term}")
    field, operator, wanted = match.groups()
    if not field.startswith("metadata.") and field not in resource.fields:
        raise ApiFault(400, f"field label not supported: {field}")
    value, equal = _FIELDS[field], operator != "!="
    return lambda facts: (value(facts) == wanted) is equal


def _label_test(term: str) -> _Test:
    if match := _EQUALITY.match(term):
        label, operator, wanted = match.groups()
        equal = operator != "!="
        return lambda facts: ((facts.metadata.labels or {}).get(label) == wanted) is equal
    if match := _EXISTENCE.match(term):
        absent, label = match.groups()
        return lambda facts: (label in (facts.metadata.labels or {})) is not bool(absent)
    raise ApiFault(400, f"unable to parse requirement: {term}")
