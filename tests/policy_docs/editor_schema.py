"""The JSON schema of policies for editors, made of the models that validate them."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from engine.plugins import PLUGINS
from engine.policy import PlacementPolicy

_TYPE_META: Final = ("apiVersion", "kind")  # accepted in args that come from a scheduler


def editor_schema() -> str:
    """Return the schema of a PlacementPolicy, with the args of each plugin, as JSON."""
    models: list[type[BaseModel]] = [
        PlacementPolicy,
        *(plugin.args for plugin in PLUGINS.values()),
    ]
    names, found = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions = found["$defs"]
    args = {name: names[plugin.args, "validation"] for name, plugin in PLUGINS.items()}
    for reference in args.values():
        definition = definitions[_name_in(reference)]
        definition["properties"] = {
            **{key: {"type": "string"} for key in _TYPE_META},
            **definition.get("properties", {}),
        }
    for rule, verb in (("Filter", "filter"), ("Score", "score")):
        able = [name for name, plugin in PLUGINS.items() if getattr(plugin, verb)]
        definition = definitions[rule]
        definition["properties"]["plugin"]["examples"] = able
        definition["allOf"] = [_args_of(name, args[name]) for name in able]
    policy = definitions.pop(_name_in(names[PlacementPolicy, "validation"]))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**head, **policy, "$defs": definitions}, indent=1) + "\n"


def _args_of(plugin: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the condition that a rule with this plugin has the args of it."""
    named = {"properties": {"plugin": {"const": plugin}}, "required": ["plugin"]}
    return {"if": named, "then": {"properties": {"args": reference}}}


def _name_in(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
