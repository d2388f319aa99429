"""Where the parts of a policy stand in its file, by the names that warnings give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.documents import Document, Path
from engine.errors import Place
from engine.policy.environment import ExpressionScope
from engine.policy.findings import Finding
from engine.policy.schema import NamespacedPlacementPolicy, PlacementPolicy

_NAME: Final = ("metadata", "name")


_Steps = tuple[str | int, ...]


class PartPlaces:
    """The places of the rules, variables and match conditions of a policy.

    Attributes:
        document: what the policy was compiled from.
        group_labels: the `groupLabels` that are written in it.
    """

    def __init__(
        self, written: PlacementPolicy | NamespacedPlacementPolicy, document: Document
    ) -> None:
        self.document = document
        placement = written.spec.placement
        is_written = "group_labels" in placement.model_fields_set
        self.group_labels = placement.group_labels if is_written else ()
        self._paths: dict[str, _Steps] = {"": _NAME}
        for name, path in _parts(written):
            self._paths.setdefault(name, path)  # of a filter before a score of that name

    def of(self, finding: Finding) -> Place:
        """Return the place of what is found; that of the policy's name for an unknown part."""
        part = self._paths.get(finding.part, _NAME)
        path = finding.path or (*part, "expression")
        return self.document.place(path, offset=finding.offset)

    def part_at(self, path: Path) -> str:
        """Return the part that a value belongs to, "" where it is in none of them."""
        parts = {at: name for name, at in self._paths.items()}
        starts = (tuple(path[:end]) for end in range(len(path), 0, -1))
        return next((parts[start] for start in starts if start in parts), "")


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


def _parts(
    written: PlacementPolicy | NamespacedPlacementPolicy,
) -> Iterator[tuple[str, _Steps]]:
    spec = written.spec
    for index, condition in enumerate(spec.match.match_conditions):
        yield condition_part(condition.name), ("spec", "match", "matchConditions", index)
    for index, variable in enumerate(spec.variables):
        yield variable_part(variable.name), ("spec", "variables", index)
    for index, rule in enumerate(spec.filters):
        yield rule.name, ("spec", "filters", index)
    for index, score in enumerate(spec.scores):
        yield score.name, ("spec", "scores", index)
