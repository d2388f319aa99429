"""The fields of policies and of their cases, made of the models that validate them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from engine.policy import PlacementPolicy
from engine.policy_tests.cases import WrittenCase

HEAD: Final = """\
# Fields of a policy

This page is the reference for policy authors: every key of a PlacementPolicy and of `cases.yaml`,
with its type, default and meaning. [policies.md](policies.md) is the guide, and
[plugins.md](plugins.md) lists the args of plugins. `[]` means each entry of a list.

Editors complete and check policies, args of plugins included, with
[placementpolicy.schema.json](placementpolicy.schema.json). For yaml-language-server, which VS Code
uses, put its path or address in the first line of a policy:

```yaml
# yaml-language-server: $schema=../../docs/placementpolicy.schema.json
```

`make docs` writes this page from `engine/policy/schema.py`, `engine/policy/schema.py` and
`engine/policy_tests/cases.py`: do not edit it by hand.
"""

_LONGEST_DEFAULT: Final = 60  # characters
_WIDEST: Final = 2**31 - 1  # a bound that is wider says nothing

Schema: TypeAlias = dict[str, Any]


def field_reference() -> str:
    """Return the page, in Markdown."""
    parts = [HEAD]
    for heading, model in (("PlacementPolicy", PlacementPolicy), ("A case", WrittenCase)):
        schema = model.model_json_schema(by_alias=True)
        rows = [f"| {' | '.join(row)} |" for row in _rows(schema, schema["$defs"])]
        head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        parts += [f"## {heading}", "", *head, *rows, ""]
    return "\n".join(parts)


def _rows(model: Schema, models: Schema, above: str = "") -> Iterator[tuple[str, ...]]:
    """Yield path, type, default and meaning of each field of a model, and of those below it."""
    for name, field in model["properties"].items():
        path = f"{above}{name}"
        default = "required" if name in model.get("required", ()) else _default(field)
        meaning = str(field.get("description", ""))
        yield f"`{path}`", _type(field, models), default, _cell(meaning)
        inner, suffix = _model_in(field, models)
        if inner is not None:
            yield from _rows(inner, models, f"{path}{suffix}.")


def _model_in(field: Schema, models: Schema) -> tuple[Schema | None, str]:
    """Return the model with fields that a field holds, and how it is reached."""
    kinds = [(each, "") for each in field.get("anyOf", [field])]
    for held, suffix in (*kinds, (field.get("items", {}), "[]")):
        found = _resolved(held, models)
        if "properties" in found:
            return found, suffix
    return None, ""


def _resolved(field: Schema, models: Schema) -> Schema:
    reference = str(field.get("$ref", ""))
    found: Schema = models[reference.rpartition("/")[2]] if reference else field
    return found


def _type(field: Schema, models: Schema) -> str:
    """Return a type in words, with its bounds."""
    kinds = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
    if not any({"$ref", "type", "const", "enum", "anyOf"} & each.keys() for each in kinds):
        return "any"
    return " or ".join(dict.fromkeys(_single(_resolved(each, models), models) for each in kinds))


def _single(field: Schema, models: Schema) -> str:
    if "const" in field or "enum" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    match field["type"]:
        case "array":
            return f"list of {_type(field['items'], models)}{_count(field)}"
        case "object" if isinstance(values := field.get("additionalProperties"), dict):
            return f"map of {_type(values, models)}"
        case "object":
            return "object"
        case "string" if field.get("format"):
            return "time"
        case kind:
            return f"{kind}{_bounds(field)}"


def _bounds(field: Schema) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    is_bounded = most is not None and most < _WIDEST
    return f" {least}..{most}" if is_bounded else ""


def _count(field: Schema) -> str:
    return f", at most {field['maxItems']}" if "maxItems" in field else ""


def _default(field: Schema) -> str:
    default = field.get("default")
    if default in (None, "", [], {}) or isinstance(default, dict):
        return ""
    if isinstance(default, list):
        return "<br>".join(f"`{item}`" for item in default)
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{text}`" if len(text) <= _LONGEST_DEFAULT else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
