"""Where the parts of a policy stand in its file, by the names that warnings give them."""

from __future__ import annotations

from collections.abc import Iterator

from engine.documents import Document, Path
from engine.errors import Place
from engine.policy.environment import ExpressionScope
from engine.policy.schema import NamespacedPlacementPolicy, PlacementPolicy


def part_places(
    written: PlacementPolicy | NamespacedPlacementPolicy, document: Document
) -> dict[str, Place]:
    """Return the place of each rule, variable and match condition; that of the policy as ""."""
    places: dict[str, Place] = {}
    for name, path in _parts(written):
        places.setdefault(name, document.place(path))  # of a filter before a score of that name
    return places


def variable_part(name: str) -> str:
    """Return what warnings call a variable."""
    return f"variable `{name}`"


def condition_part(name: str) -> str:
    """Return what warnings call a match condition."""
    return f"match condition `{name}`"


def part_name(scope: ExpressionScope, name: str) -> str:
    """Return what warnings call the part of a policy that an expression belongs to."""
    match scope:
        case ExpressionScope.MATCH:
            return condition_part(name)
        case ExpressionScope.VARIABLES:
            return variable_part(name)
    return name


def _parts(written: PlacementPolicy | NamespacedPlacementPolicy) -> Iterator[tuple[str, Path]]:
    spec = written.spec
    yield "", ("metadata", "name")
    for index, condition in enumerate(spec.match.match_conditions):
        yield condition_part(condition.name), ("spec", "match", "matchConditions", index)
    for index, variable in enumerate(spec.variables):
        yield variable_part(variable.name), ("spec", "variables", index)
    for index, rule in enumerate(spec.filters):
        yield rule.name, ("spec", "filters", index)
    for index, score in enumerate(spec.scores):
        yield score.name, ("spec", "scores", index)
