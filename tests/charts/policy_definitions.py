"""The CustomResourceDefinitions of policies, made of the models that check policies in files.

The schema is what the API server can check: types, bounds, known keys, and in CEL what holds
between fields. What a validator of a model says in Python stands in `_RULES` a second time; tests
on an API server compare both. Expressions and args of plugins are compiled by stowplan alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from engine.model.policy_resource import POLICY_GROUP, POLICY_VERSION, PolicyKind
from engine.policy import PlacementPolicy
from engine.policy.schema import NamespacedPlacementPolicy

Json: TypeAlias = dict[str, Any]


class _Rule(NamedTuple):
    """A rule in CEL, and the message where it is false."""

    rule: str
    message: str


_HEAD: Final = """\
# Made of engine/policy/schema.py by `make chart`: do not edit it by hand. It is installed where
# `crds.placementPolicy.install` asks for it, and survives `helm uninstall`.
"""

_MODELS: Final = {
    PolicyKind.CLUSTER: PlacementPolicy,
    PolicyKind.NAMESPACED: NamespacedPlacementPolicy,
}
_SHORT_NAMES: Final = {PolicyKind.CLUSTER: "plp", PolicyKind.NAMESPACED: "nplp"}

_RULE: Final[tuple[_Rule, ...]] = (
    _Rule(
        "!(has(self.plugin) && has(self.expression))"
        " && (has(self.plugin) || has(self.expression) || has(self.name))",
        "give either `plugin` or `expression`",
    ),
    _Rule(
        "!has(self.expression) || has(self.name)",
        "a rule with an `expression` needs a `name`",
    ),
    _Rule("!has(self.expression) || !has(self.args)", "`args` belong to a `plugin`"),
)
_RULES: Final[Mapping[str, tuple[_Rule, ...]]] = {
    "Filter": (
        *_RULE,
        _Rule(
            "!has(self.message) || !has(self.plugin)",
            "a plugin gives its own reasons, drop `message`",
        ),
    ),
    "Score": _RULE,
    "Placement": (
        _Rule(
            "!has(self.at) || self.at != 'Binding'"
            " || !has(self.whenNoneFits) || self.whenNoneFits != 'Deny'",
            "a pod that is decided at binding cannot be denied any more",
        ),
        _Rule(
            "has(self.at) && self.at == 'Binding'"
            " || !has(self.whenNoneFits) || self.whenNoneFits != 'Wait'",
            "only a pod that is decided at binding can be let wait",
        ),
        _Rule(
            "!has(self.minGain) || has(self.at) && self.at == 'Binding'",
            "only a pod that is decided at binding is moved",
        ),
    ),
    "NamespacedSpec": (
        _Rule(
            "!has(self.match) || !has(self.match.namespaceSelector)",
            "it applies to pods of its own namespace alone",
        ),
        _Rule(
            "!has(self.placement) || !has(self.placement.preemption)"
            " || self.placement.preemption == 'Off'",
            "it may not evict pods",
        ),
    ),
}
"""By model."""

_MAPS_BY_NAME: Final = frozenset({"MatchCondition", "Variable"})
"""Entries that always have a name; filters and scores may have that of their plugin."""

_KEPT: Final = (
    "description",
    "enum",
    "maxItems",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "required",
    "type",
)

_CONDITION: Final = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": {"type": "string", "description": "`Accepted` or `Degraded`."},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation that was judged.",
        },
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "reason": {"type": "string", "description": "In one word."},
        "message": {
            "type": "string",
            "maxLength": 32768,
            "description": "For people: every mistake, with its line and a hint.",
        },
    },
}
_OUTCOME: Final = {
    "type": "object",
    "description": "Where the pods that it applies to were bound, lately; where somebody counts.",
    "properties": {
        "since": {"type": "string", "description": "When the counts begin."},
        "pods": {
            "type": "integer",
            "format": "int64",
            "description": "Pods bound since, advised or decided at their binding.",
        },
        "landed": {
            "type": "integer",
            "format": "int64",
            "description": "Of those, the ones on a node that they were meant for.",
        },
        "rejected": {
            "type": "integer",
            "format": "int64",
            "description": "Pods on a node that its filters turn away.",
        },
        "gain": {
            "type": "string",
            "description": "Mean points gained against the nodes that the scheduler took, of 100.",
        },
    },
}
_STATUS: Final = {
    "type": "object",
    "description": "What the leader found; nothing decides by it.",
    "properties": {
        "mode": {
            "type": "string",
            "description": "The mode in force; empty where the policy is not.",
        },
        "outcome": _OUTCOME,
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": _CONDITION,
        },
    },
}
_COLUMNS: Final = (
    ("Mode", "string", "The mode in force.", ".status.mode"),
    ("Priority", "integer", "", ".spec.priority"),
    (
        "Accepted",
        "string",
        "Whether it is in force as it was last written.",
        '.status.conditions[?(@.type=="Accepted")].status',
    ),
    ("Pods", "integer", "Pods that it applies to, lately bound.", ".status.outcome.pods"),
    ("Age", "date", "", ".metadata.creationTimestamp"),
)


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out each, as people would."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's interface
        """Return that they are."""
        return True


def definitions() -> dict[str, str]:
    """Return the text of each CustomResourceDefinition, by its name."""
    return {
        f"{kind.plural}.{POLICY_GROUP}": _HEAD
        + yaml.dump(_definition(kind), Dumper=_Dumper, sort_keys=False, width=100)
        for kind in PolicyKind
    }


def _definition(kind: PolicyKind) -> Json:
    is_namespaced = kind is PolicyKind.NAMESPACED
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{POLICY_GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": POLICY_GROUP,
            "scope": "Namespaced" if is_namespaced else "Cluster",
            "names": {
                "kind": kind.value,
                "listKind": f"{kind.value}List",
                "plural": kind.plural,
                "singular": kind.value.lower(),
                "shortNames": [_SHORT_NAMES[kind]],
                "categories": ["stowplan"],
            },
            "versions": [
                {
                    "name": POLICY_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*each) for each in _COLUMNS],
                    "schema": {"openAPIV3Schema": _policy(kind)},
                }
            ],
        },
    }


def _column(name: str, kind: str, description: str, path: str) -> Json:
    described = {"description": description} if description else {}
    return {"name": name, "type": kind, **described, "jsonPath": path}


def _policy(kind: PolicyKind) -> Json:
    model = _MODELS[kind]
    schema = model.model_json_schema(by_alias=True)
    spec = _structural(schema["properties"]["spec"], schema["$defs"])
    return {
        "type": "object",
        "description": schema["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _STATUS,
        },
    }


def _structural(field: Json, models: Json) -> Json:
    """Return a part of a JSON schema as the API server takes it: no references, no defaults."""
    name = ""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        field = {**models[name], **field}
    if "anyOf" in field:  # or null, which the API server takes for any absent value
        inner, *others = (each for each in field["anyOf"] if each.get("type") != "null")
        field = {**({"additionalProperties": True} if others else inner), **field}
    schema: Json = {key: field[key] for key in _KEPT if key in field}
    if (default := field.get("default")) not in (None, [], {}) and not isinstance(default, dict):
        shown = ", ".join(default) if isinstance(default, list) else default
        schema["description"] = f"{schema['description']} Default: `{shown}`."
    if "properties" in field:
        schema["properties"] = {
            key: _structural(inner, models) for key, inner in field["properties"].items()
        }
    elif field.get("additionalProperties") is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(values := field.get("additionalProperties"), dict):
        schema["additionalProperties"] = _structural(values, models)
    if "items" in field:
        schema |= _list_of(field["items"], models)
    if field.get("type") == "integer":
        schema["format"] = "int64"
    if name in _RULES:
        schema["x-kubernetes-validations"] = [
            {"rule": each.rule, "message": each.message} for each in _RULES[name]
        ]
    return schema


def _list_of(item: Json, models: Json) -> Json:
    items = _structural(item, models)
    if item.get("$ref", "").rpartition("/")[2] not in _MAPS_BY_NAME:
        return {"x-kubernetes-list-type": "atomic", "items": items}
    return {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": items,
    }
