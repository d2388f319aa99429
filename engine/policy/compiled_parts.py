"""The expressions and plugins of a document, compiled, with the mistakes in the others.

Each is looked at by itself, whatever else is wrong with the document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from engine.cel import DYN, CelProblemsError, CelType, Program
from engine.documents import MOST_PROBLEMS, Document, validate_model
from engine.errors import Diagnostic, did_you_mean
from engine.plugins import PLUGINS, UPSTREAM_NAMES, Args, Plugin
from engine.policy import rule_schema
from engine.policy.environment import ExpressionScope
from engine.policy.findings import Finding
from engine.policy.part_places import part_name
from engine.policy.programs import ANY, CONDITION, FILTER, SCORE, ResultType, compile_expression
from engine.policy.resource_names import misspelt_in_args

ItemPath: TypeAlias = tuple[str | int, ...]
"""Where an item of a list stands in a document."""

CONDITIONS: Final = ("spec", "match", "matchConditions")
VARIABLES: Final = ("spec", "variables")
FILTERS: Final = ("spec", "filters")
SCORES: Final = ("spec", "scores")


class CompiledPrograms:
    """The expressions of a document, compiled.

    Attributes:
        found: programs by the path of the item that each belongs to.
        problems: the mistakes in the others.
        warnings: what is accepted and probably not meant.
    """

    def __init__(self, document: Document) -> None:
        self.found: dict[ItemPath, Program] = {}
        self.problems: list[Diagnostic] = []
        self.warnings: list[Finding] = []
        self._document = document
        for path, item in _items(document, CONDITIONS):
            self._add(path, item, ExpressionScope.MATCH, {}, CONDITION)
        types: dict[str, CelType] = {}
        names = {str(item.get("name")) for _, item in _items(document, VARIABLES)}
        for path, item in _items(document, VARIABLES):
            later = names - types.keys()
            self._add(path, item, ExpressionScope.VARIABLES, dict(types), ANY, later)
            program = self.found.get(path)
            types[str(item.get("name"))] = DYN if program is None else program.result_type
        for path, item in _items(document, FILTERS):
            self._add(path, item, ExpressionScope.RULES, types, FILTER)
        for path, item in _items(document, SCORES):
            self._add(path, item, ExpressionScope.RULES, types, SCORE)

    def _add(
        self,
        path: ItemPath,
        item: Mapping[str, object],
        scope: ExpressionScope,
        variables: Mapping[str, CelType],
        required: ResultType,
        later: Collection[str] = (),
    ) -> None:
        source = item.get("expression")
        if not isinstance(source, str) or not source:
            return  # the schema reports it
        at = (*path, "expression")
        try:
            program = compile_expression(source, scope, variables, required, later)
        except CelProblemsError as error:
            self.problems += (
                self._document.problem(at, found.message, hint=found.hint, offset=found.offset)
                for found in error.problems
            )
            return
        self.found[path] = program
        part = part_name(scope, str(item.get("name")))
        self.warnings += (
            Finding(
                part,
                f"{found.message}; Kubernetes refuses that where it knows types",
                found.hint,
                found.offset,
            )
            for found in program.warnings
        )


class ConfiguredPlugins:
    """The plugins that a document names, with their args.

    Attributes:
        found: plugin and args by the path of the rule.
        problems: the mistakes in the others.
        warnings: args that are allowed and probably not meant.
    """

    def __init__(self, document: Document) -> None:
        self.found: dict[ItemPath, tuple[Plugin, Args]] = {}
        self.problems: list[Diagnostic] = []
        self.warnings: list[Finding] = []
        self._document = document
        for path, item in _items(document, FILTERS):
            self._add(path, item, lambda plugin: plugin.filter is not None, "filter")
        for path, item in _items(document, SCORES):
            self._add(path, item, lambda plugin: plugin.score is not None, "score")

    def _add(
        self,
        path: ItemPath,
        item: Mapping[str, object],
        can: Callable[[Plugin], bool],
        verb: str,
    ) -> None:
        name = rule_schema.named_plugin(item)
        if not name:
            return  # an expression, or the schema reports it
        key = "plugin" if "plugin" in item else "name"
        plugin = PLUGINS.get(name)
        if plugin is None or not can(plugin):
            able = [other for other, found in PLUGINS.items() if can(found)]
            message = f"plugin `{name}` does not {verb}" if plugin else f"unknown plugin `{name}`"
            hint = did_you_mean(name, able) or f"the plugins that {verb} are {', '.join(able)}"
            self.problems.append(self._document.problem((*path, key), message, hint=hint))
            return
        at = (*path, "args")
        written = item.get("args") or {}
        self.problems += self._args_of_another(name, written, at)
        warnings: list[str] = []
        args, problems = validate_model(plugin.args, written, self._document, at, warnings)
        part = str(item.get("name") or name)
        self.warnings += (Finding(part, warning, path=at) for warning in warnings)
        self.problems += problems
        self.problems += islice(misspelt_in_args(written, self._document, at), MOST_PROBLEMS)
        if args is not None:
            self.found[path] = (plugin, args)

    def _args_of_another(self, plugin: str, args: object, at: ItemPath) -> Iterator[Diagnostic]:
        """Yield the problem of args whose `kind` is that of another plugin."""
        kind = args.get("kind") if isinstance(args, dict) else None
        if not isinstance(kind, str):
            return
        owner = kind.removesuffix("Args")
        owner = UPSTREAM_NAMES.get(owner, owner)
        if owner in PLUGINS and owner != plugin:
            yield self._document.problem((*at, "kind"), f"these are args of plugin `{owner}`")


def _items(document: Document, path: ItemPath) -> Iterator[tuple[ItemPath, dict[str, Any]]]:
    """Yield the mappings in a list of a document, with their paths; nothing if it is malformed."""
    found = document.value
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    for index, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield (*path, index), item
