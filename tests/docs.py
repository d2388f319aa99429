"""The plugin reference, made of the plugins themselves, and the contents of long pages.

Run as `python -m tests.docs`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import yaml
from pydantic.alias_generators import to_camel

from engine.model.quantity import INT64_MIN
from engine.plugins import MAX_SCORE, PLUGINS, Plugin
from engine.view import DOMAIN_NAMES
from tests.contents import long_pages, with_contents

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "plugins.md"

HEAD: Final = """\
# Plugins

This page is the reference for policy authors: every plugin that a filter or a score may name, with
its args and an example. Names, defaults and validation are those of the projects that the plugins
come from; differences are listed with each plugin, after those of all plugins, and each is shown by
a test. Plugins are tested with cases from the upstream code. A score first has a raw value on a
scale of its own, and then 0 to 100 points over the nodes that passed all filters. A policy
multiplies the points by `weight`.

How rules make a policy is described in [policies.md](policies.md), how to write a plugin in
[CONTRIBUTING.md](../CONTRIBUTING.md). `stowplan explain` shows what each formula was given on a
node. `make docs` writes this page from `engine/plugins/`: do not edit it by hand.

## Strategy Balanced

LimitAware, LoadAware and NodeResourcesFit have a strategy `Balanced` that their sources do not
have. Other strategies look only at how full a node is afterwards, so they treat small and large
nodes alike. `Balanced` prefers the node where the pod adds least to the variance over all nodes.

- x is the used share of a node, m the mean over the nodes that the pod's label rules allow, d the
  share that the pod would take. The variance grows with d * (2 * (x - m) + d).
- Points are 50 - 50 * c * (2 * (x - m) + d), between 0 and 100, where c is the capacity of the
  smallest of these nodes divided by that of the node. 50 means that nothing changes.
- On 200 nodes of three sizes, with pods from 20 millicores to 6 cores, the standard deviation ends
  about 10 % lower than with LeastAllocated. On nodes of one size there is no difference.

## All plugins

Differences from upstream:

- **Large amounts** of a pod, a node or a report count as 281 TB, or as many millicores. Ratios,
  percentages and windows of time have bounds as far beyond any cluster.
- **Large pods**: no rule for other pods finds one whose labels, ports and affinity to pods take
  more than 8 KiB.
- **Pods that are not bound yet** count where stowplan nominates or advises them to go, for every
  pod, and in scores too. Upstream counts all nominated pods, in filters alone, for pods of no
  higher priority.
"""

EXAMPLES: Final = {
    "DiskIOAware": "filters: [{plugin: DiskIOAware, args: {writeCoefficient: 2}}]",
    "ImageLocality": "scores: [{plugin: ImageLocality, weight: 2}]",
    "InterPodAffinity": "filters: [{plugin: InterPodAffinity}]",
    "LimitAware": (
        "filters: [{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 150%}}}]"
    ),
    "LoadAware": "filters: [{plugin: LoadAware, args: {usageThresholds: {cpu: 65, memory: 95}}}]",
    "LoadVariationRiskBalancing": (
        "scores: [{plugin: LoadVariationRiskBalancing, args: {safeVarianceMargin: 2}}]"
    ),
    "LowRiskOverCommitment": (
        "scores: [{plugin: LowRiskOverCommitment, args: {riskLimitWeights: {cpu: 0.3}}}]"
    ),
    "NetworkOverhead": "scores: [{plugin: NetworkOverhead, args: {namespaces: [shop, default]}}]",
    "NodeAffinity": (
        "filters: [{plugin: NodeAffinity, args: {addedAffinity: "
        "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: pool, operator: In, values: [web]}]}]}}}}]"
    ),
    "NodeMetadata": (
        "scores: [{plugin: NodeMetadata, args: {metadataKey: example.com/cost, "
        "metadataSource: Label, metadataType: Number, scoringStrategy: Lowest}}]"
    ),
    "NodePorts": "filters: [{plugin: NodePorts}]",
    "NodeResourceTopologyMatch": (
        "filters: [{plugin: NodeResourceTopologyMatch}]\n"
        "scores: [{plugin: NodeResourceTopologyMatch, "
        "args: {scoringStrategy: {type: LeastNUMANodes}}}]"
    ),
    "NodeResourcesAllocatable": "scores: [{plugin: NodeResourcesAllocatable, args: {mode: Most}}]",
    "NodeResourcesBalancedAllocation": (
        "scores: [{plugin: NodeResourcesBalancedAllocation, args: {kubernetesVersion: '1.35'}}]"
    ),
    "NodeResourcesFit": (
        "scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]"
    ),
    "NodeUnschedulable": "filters: [{plugin: NodeUnschedulable}]",
    "Peaks": (
        "scores: [{plugin: Peaks, args: {nodePowerModel: {node-1: {k0: 90, k1: 3, k2: 0.04}}}}]"
    ),
    "PodState": "scores: [{plugin: PodState}]",
    "PodTopologySpread": "filters: [{plugin: PodTopologySpread}]",
    "ResourceLimitAware": (
        "scores: [{plugin: ResourceLimitAware, args: {resources: [{name: cpu, weight: 2}]}}]"
    ),
    "TaintToleration": "scores: [{plugin: TaintToleration}]",
    "TargetLoadPacking": "scores: [{plugin: TargetLoadPacking, args: {targetUtilization: 60}}]",
}
"""A part of a policy's `spec` for each plugin, in YAML's flow style."""

ALL_PLUGINS: Final = "All plugins"
_DIFFERENCES: Final = "Differences from upstream:"
_DEPTH: Final = 3  # of `engine.plugins` and the name of a plugin
_DEEPEST: Final = 3  # deeper down it is Kubernetes' own

Schema: TypeAlias = dict[str, Any]


def plugin_reference() -> str:
    """Return the page, in Markdown."""
    parts = [HEAD, *(_section(name, plugin) for name, plugin in PLUGINS.items())]
    return with_contents("\n".join(parts))


@cache
def section(name: str) -> str:
    """Return the section of a plugin, or that of ALL_PLUGINS."""
    return plugin_reference().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def differences(name: str) -> dict[str, str]:
    """Return what a section of the page lists as differences from upstream, by its first words."""
    listed = section(name).partition(f"{_DIFFERENCES}\n\n")[2].partition("\n\n")[0]
    found = re.findall(r"^- \*\*(.+?)\*\*:? (.+(?:\n  .+)*)", listed, re.MULTILINE)
    return {what: " ".join(text.split()) for what, text in found}


def _section(name: str, plugin: Plugin) -> str:
    sides: list[tuple[str, Any]] = [
        (what, side if isinstance(side, type) else type(side(plugin.args())))
        for what in ("filter", "score")
        if (side := getattr(plugin, what))
    ]
    module = _module_of(sides[0][1])
    _, _, text = (inspect.getdoc(module) or "").partition(": ")
    body, heading, differences = text.partition(_DIFFERENCES)
    reads = ", ".join(DOMAIN_NAMES[domain] for domain in plugin.reads)
    kinds = " and ".join(what for what, _ in sides)
    lines = [f"## {name}", "", f"A {kinds}; reads {reads}.", "", _sentence(body.strip()), ""]
    for what, side in sides:
        lines += [f"- **{what.capitalize()}**: {_first(side)}"]
        if what == "score":
            lines += [f"  - Raw: {_returned(side.score)}"]
            lines += [f"  - Points: {_returned(side.normalize)}"]
    lines += [f"- `{name}`: {text}" for name, text in _formulas(module)]
    if differences:
        lines += ["", heading, "", differences.strip()]
    if name not in EXAMPLES:
        raise LookupError(f"add an example of `{name}` to EXAMPLES in {__file__}")
    lines += ["", *_args(plugin), "```yaml", _block(EXAMPLES[name]), "```", *_shipped(name), ""]
    return "\n".join(lines)


HELPERS = frozenset(
    {
        "balanced_allocation",
        "container_requests",
        "distribution",
        "expected_usage",
        "expired_rows",
        "first_of",
        "fitted",
        "greatest_variance",
        "is_host_level",
        "is_native",
        "is_percentage",
        "is_shared",
        "least_allocated",
        "least_numa_nodes",
        "most_allocated",
        "read",
        "usage_inputs",
        "whole_units",
    }
)
"""Functions in the files of plugins that a reader of the page does not look for."""


def _module_of(side: type) -> ModuleType:
    """Return the file of a plugin, the one that joins its parts where it has several."""
    module = import_module(".".join(side.__module__.split(".")[:_DEPTH]))
    return import_module(f"{module.__name__}.plugin") if hasattr(module, "__path__") else module


def _formulas(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the functions that a plugin's file offers, each with what it returns."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        is_own = function.__module__ == module.__name__ and not name.startswith("_")
        if is_own and name not in HELPERS:
            text, _, _ = (inspect.getdoc(function) or "").partition("\n\nArgs:")
            names = ", ".join(inspect.signature(function).parameters)
            told = _sentence(" ".join(text.split()).removeprefix("Return "))
            yield f"{name}({names})", told.replace("MAX_SCORE", str(MAX_SCORE))


def _args(plugin: Plugin) -> Iterator[str]:
    """Yield the table of args, none for a plugin without any."""
    schema = plugin.args.model_json_schema(by_alias=True)
    inherited = [inspect.getdoc(model) or "" for model in plugin.args.__mro__]
    schema["description"] = "\n".join(text for text in inherited if "Attributes:" in text)
    rows = list(_rows(schema, schema.get("$defs", {})))
    if rows:
        yield from ("| arg | type | default | meaning |", "| --- | --- | --- | --- |")
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


def _rows(
    model: Schema, models: dict[str, Schema], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield name, type, default and meaning of each field of a model, and of those below it."""
    meanings = _meanings(model.get("description", ""))
    for name, field in model.get("properties", {}).items():
        inner, suffix = _model_in(field, models)
        summary = inner.get("description", "").partition("\n")[0] if inner else ""
        default = "required" if name in model.get("required", ()) else _default(field, inner)
        meaning = meanings.get(name) or _clause(summary)
        yield f"`{'.'.join((*above, name))}`", _type(field), default, meaning
        if inner and len(above) < _DEEPEST:
            yield from _rows(inner, models, (*above, f"{name}{suffix}"))


def _model_in(field: Schema, models: dict[str, Schema]) -> tuple[Schema | None, str]:
    """Return the model that a field holds, or holds several of, and how those are reached."""
    for one in (field, *field.get("anyOf", ())):
        for held, suffix in (
            (one, ""),
            (one.get("items"), "[]"),
            (one.get("additionalProperties"), ".*"),
        ):
            if isinstance(held, dict) and "$ref" in held:
                return models[held["$ref"].rpartition("/")[2]], suffix
    return None, ""


def _type(field: Schema, plural: str = "") -> str:
    """Return a type in words, with its bounds."""
    if "$ref" in field:
        return f"object{plural}"
    if "anyOf" in field:
        kinds = (_type(one, plural) for one in field["anyOf"] if one.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in field:
        return ", ".join(f"`{one or json.dumps(one)}`" for one in field["enum"])
    match field["type"]:
        case "array":
            return f"list{plural} of {_type(field['items'], 's')}"
        case "object":
            return f"map{plural} of {_type(field['additionalProperties'], 's')}"
        case kind:
            return f"{kind}{plural}{_bounds(field)}"


def _bounds(field: Schema) -> str:
    """Return bounds that are narrower than those of the machine."""
    above, least = field.get("exclusiveMinimum"), field.get("minimum", INT64_MIN)
    if above is not None:
        return f" above {above}"
    return f" {least}..{field['maximum']}" if "maximum" in field and least > INT64_MIN else ""


def _default(field: Schema, inner: Schema | None) -> str:
    """Return a default as it would be written; none of an object, for its fields have their own."""
    default = field.get("default")
    if default in (None, "", [], {}) or (inner and isinstance(default, dict)):
        return ""
    return f"`{json.dumps(default)}`"


def _meanings(docstring: str) -> dict[str, str]:
    """Return what a docstring says of attributes, by the name a person writes."""
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", docstring, re.MULTILINE)
    return {to_camel(name): " ".join(text.split()).rstrip(".") for name, text in found}


def _first(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _returned(function: object) -> str:
    """Return what a function says it returns, as a sentence."""
    text = _first(function).removeprefix("Return ").replace("MAX_SCORE", str(MAX_SCORE))
    return _sentence(text)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _clause(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}".rstrip(".")


def _block(example: str) -> str:
    """Return an example as people write it."""
    return yaml.safe_dump(
        yaml.safe_load(example), sort_keys=False, default_flow_style=False
    ).strip()


def _shipped(name: str) -> Iterator[str]:
    """Yield where a shipped policy uses a plugin."""
    files = sorted(ROOT.glob("policies/*/policy.yaml"))
    users = [
        path.parent.name
        for path in files
        if re.search(rf"plugin: {name}\b", path.read_text(encoding="utf-8"))
    ]
    if users:
        links = ", ".join(f"[{user}](../policies/{user})" for user in users)
        yield from ("", f"Used in {links}.")


if __name__ == "__main__":
    PAGE.write_text(plugin_reference(), encoding="utf-8")
    for path in long_pages():
        path.write_text(with_contents(path.read_text(encoding="utf-8")), encoding="utf-8")
