"""Make what the chart has twice from where it stands once: `python -m tests.charts.generated`.

- `values.schema.json` and the tables of the chart's README come from `values.yaml`: a `# --`
  comment describes the key below it, a `# @schema` line adds to its JSON schema what its default
  does not say, and a `##` line is the heading of what follows. What `settings` may hold comes from
  the settings of the webhook themselves.
- `files/crds/` holds the definitions of policies, from the models that check them.
- `files/policies/` holds the shipped policies: a chart reads no file outside of itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.charts.policy_definitions import definitions
from webhook.settings import Settings

Json: TypeAlias = dict[str, Any]
_Row: TypeAlias = tuple[str, object, str]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "stowplan"

CHARTS_OWN = frozenset(
    {
        "binding",
        "binding_namespaces",
        "certificate_names",
        "certificate_secret",
        "client_allowed_names",
        "client_ca",
        "cluster",
        "config",
        "context",
        "dashboard_port",
        "debug_pages",
        "drain_seconds",
        "excluded_namespaces",
        "hard_reclaim_namespaces",
        "hold",
        "hold_max",
        "hold_seconds",
        "kubeconfig",
        "leader_service",
        "lease",
        "metrics_host",
        "metrics_port",
        "namespace",
        "outcome",
        "preemption",
        "placement_mode",
        "pod_ips",
        "policies",
        "policy_resources",
        "port",
        "probe_port",
        "quota_mode",
        "quota_rollout",
        "recreate_gangs",
        "shutdown_delay_seconds",  # the sleep of its preStop hook
        "tls_cert",
        "tls_key",
        "webhook_configurations",
    }
)
"""Settings that the chart sets itself, or that make no sense in it."""

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_SETTINGS = "settings"
_HEADING = "## "


@dataclass(frozen=True, slots=True)
class Value:
    """A documented value of the chart.

    Attributes:
        group: the heading that it stands below: what it is for.
        path: its keys, from the outermost.
        default: as in the file.
        text: its description.
        schema: what the file adds to the schema of its default.
    """

    group: str
    path: tuple[str, ...]
    default: object
    text: str
    schema: Json | str

    @property
    def key(self) -> str:
        """Its name as `--set` takes it."""
        return ".".join(self.path)


class UndocumentedError(Exception):
    """A key of `values.yaml` has no description, or stands below no heading."""


def values() -> list[Value]:
    """Return every value in the order of the file.

    Raises:
        UndocumentedError: one has no description, or no heading.
    """
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        raise UndocumentedError("values.yaml is empty")
    return list(_values(root, yaml.safe_load(text), text.splitlines(), ()))


def _values(
    node: yaml.Node, content: Json, lines: list[str], path: tuple[str, ...]
) -> Iterator[Value]:
    for key, inner in node.value:
        name = key.value
        here = (*path, name)
        group = _heading_above(lines, key.start_mark.line)
        comment = _comment_above(lines, key.start_mark.line)
        if "-- " in comment:
            text, _, schema = comment.partition("-- ")[2].partition("@schema ")
            added = yaml.safe_load(schema) or {}
            yield Value(group, here, content[name], " ".join(text.split()), added)
        elif isinstance(content[name], dict) and content[name]:
            yield from _values(inner, content[name], lines, here)
        else:
            raise UndocumentedError(f"`{'.'.join(here)}` of values.yaml has no `# --` comment")


def _heading_above(lines: list[str], line: int) -> str:
    for text in reversed(lines[:line]):
        if text.startswith(_HEADING):
            return text.removeprefix(_HEADING)
    raise UndocumentedError(f"line {line + 1} of values.yaml stands below no `##` heading")


def _comment_above(lines: list[str], line: int) -> str:
    """Return the comment that ends on the line before."""
    found: list[str] = []
    while line and (text := lines[line - 1].strip()).startswith("#") and "## " not in text:
        found.insert(0, text.removeprefix("#").strip())
        line -= 1
    return "\n".join(found)


# The schema.


@cache
def schema() -> Json:
    """JSON schema of the values: closed, so that a typo is refused. Callers do not change it."""
    root: Json = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the stowplan chart",
        **_closed(),
    }
    for value in values():
        parent = root
        for name in value.path[:-1]:
            parent = parent["properties"].setdefault(name, _closed())
        parent["properties"][value.path[-1]] = _schema_of(value)
    root["properties"]["global"] |= {
        "additionalProperties": True,
        "description": (
            "Helm hands all globals of a release to each of its charts, so those of other charts"
            " are accepted here. Where this chart is the whole release, its templates refuse them."
        ),
    }
    return root


def _closed() -> Json:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _schema_of(value: Value) -> Json:
    described = {"description": value.text, "default": value.default}
    if value.schema == _SETTINGS:
        properties = {name: one for name, one, _ in settings()}
        return {**described, **_closed(), "properties": properties}
    if not isinstance(value.schema, dict):
        raise TypeError(f"`{value.key}`: the @schema line is no object")
    return {**described, "type": _TYPES.get(type(value.default), "object"), **value.schema}


def settings() -> list[tuple[str, Json, object]]:
    """Return name, schema and default of each setting that `settings` may hold."""
    schemas = Settings.model_json_schema()["properties"]
    return [
        (_camel(name), _without_noise(schemas[name]), field.default)
        for name, field in Settings.model_fields.items()
        if name not in CHARTS_OWN
    ]


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _without_noise(given: Json) -> Json:
    noise = {"default", "format", "title"}
    kept = {key: value for key, value in given.items() if key not in noise}
    if "anyOf" in kept:
        kept["anyOf"] = [_without_noise(one) for one in kept["anyOf"] if one != {"type": "null"}]
    if len(kept.get("anyOf", ())) == 1:
        kept |= kept.pop("anyOf")[0]
    return kept


# The README.


def readme(before: str) -> str:
    """Return the README with its tables as they should be.

    Args:
        before: the README as it is.
    """
    groups: dict[str, list[_Row]] = {}
    for value in values():
        groups.setdefault(value.group, []).append((value.key, value.default, value.text))
    tables = "\n".join(f"### {group}\n\n{_table(rows)}" for group, rows in groups.items())
    setting_rows = [(name, default, one["description"]) for name, one, default in settings()]
    return _between(_between(before, "values", tables), _SETTINGS, _table(setting_rows))


def _between(text: str, name: str, made: str) -> str:
    """Put a text in the place of what stands between two markers."""
    begin, end = f"<!-- {name}: generated -->\n", f"<!-- end of {name} -->"
    if begin not in text or end not in text:
        raise ValueError(f"the README has no markers `{begin.strip()}` and `{end}`")
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    return head + begin + made + end + tail


def _table(rows: list[_Row]) -> str:
    lines = ["| key | default | what it is |", "|---|---|---|"]
    lines += [f"| `{key}` | {_shown(default)} | {_cell(told)} |" for key, default, told in rows]
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    if default in (None, "", ()):
        return ""
    return f"`{_cell(json.dumps(default))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# All of it.


def files() -> dict[Path, str]:
    """Return the text of each file that is made, by its path."""
    made = {
        CHART / "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        CHART / "README.md": readme((CHART / "README.md").read_text(encoding="utf-8")),
    }
    for name, text in definitions().items():
        made[CHART / "files" / "crds" / f"{name}.yaml"] = text
    for policy in sorted(ROOT.glob("policies/*/policy.yaml")):
        copy = CHART / "files" / "policies" / f"{policy.parent.name}.yaml"
        made[copy] = policy.read_text(encoding="utf-8")
    return made


def main() -> None:
    """Write what differs, and remove policies that are gone."""
    made = files()
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    for copy in (CHART / "files" / "policies").iterdir():
        if copy not in made:
            copy.unlink()
            print(f"removed {copy.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
