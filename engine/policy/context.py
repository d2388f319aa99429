"""The request and the cluster as the rules of one policy see them, for one decision."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cel import Budget, CelError, Program, Reference
from engine.cel.vector import Plan, memory_key
from engine.model.decision import PlacementRequest
from engine.model.time import Micros
from engine.plugins import Cycle
from engine.policy.environment import (
    POD_FIELDS,
    now_value,
    pod_value,
    request_value,
)
from engine.policy.node_table import NodeTable
from engine.view import FRESH, BoolColumn, ClusterView, Domain, Freshness

MOST_ITERATIONS: Final = 250_000
"""Loop iterations that all expressions of a policy may take for one pod: some 100 ms at worst."""

MOST_ITERATIONS_OF_A_NAMESPACE: Final = 20_000
"""The same of all policies for one namespace together: those of others wait meanwhile."""

_NO_ROWS: Final = np.zeros(0, np.bool_)


class PolicyContext:
    """The values that expressions of a policy read of a request, each computed once, when read."""

    def __init__(
        self,
        request: PlacementRequest,
        now: Micros,
        *,
        policy: str = "",
        variables: Mapping[str, Program] = MappingProxyType({}),
        iterations: int = MOST_ITERATIONS,
        column_steps: int | None = None,
    ) -> None:
        self.request = request  # the pod, with the fields of its admission request
        self.now = now  # the moment of the decision, at which the age of reports is judged, too
        # what could not be evaluated, a line each, in the order of occurrence
        self.errors: list[str] = []
        self._new_budget = partial(
            Budget, iterations, column_steps=column_steps, expired=request.expired
        )
        self.budget = self._new_budget()  # shared by everything that is evaluated here
        self._policy = policy
        self._programs = variables
        self._activation: dict[str, object] = {}
        self._pod: dict[str, object] = {}  # fields of the pod, part of the activation
        self._variables: dict[str, object] = {}  # those of the policy, likewise
        self._prepared: set[str] = set()  # sources of the programs whose values are there
        self._failed: set[str] = set()  # names of variables that have no value
        # of columns, by the expression; of all that a program reads, by its source
        self._keys: dict[Hashable, str | None] = {}

    def activation(self, program: Program) -> dict[str, object]:
        """Return the values that a program reads, all but `node`, and those of others before it.

        A variable that cannot be computed is absent, and noted in `errors`.
        """
        if program.source not in self._prepared:
            self._prepare(program)
        return self._activation

    def column_key(self, expression: Hashable, program: Program, plan: Plan) -> str | None:
        """Return the key of an expression's column for this request; see `Plan.key`."""
        if expression not in self._keys:
            self._keys[expression] = plan.key(self.activation(program), self.budget)
        return self._keys[expression]

    def key_of(self, program: Program) -> str | None:
        """Return a text that differs whenever a program reads other values of the request.

        None if it would be too long.
        """
        paths = _request_references(program.references)
        if not paths:
            return ""
        if program.source not in self._keys:
            activation = self.activation(program)
            self._keys[program.source] = memory_key([_followed(path, activation) for path in paths])
        return self._keys[program.source]

    def _prepare(self, program: Program) -> None:
        activation = self._activation
        self._prepared.add(program.source)
        for root, fields in _fields_read(program.references):
            if root == "variables":
                activation["variables"] = self._variables
                for name in fields or self._programs:
                    self._compute(name)
            elif root == "pod":
                activation["pod"] = self._pod
                missing = [name for name in fields or POD_FIELDS if name not in self._pod]
                self._pod |= pod_value(missing, self.request.pod)
            elif root == "now":
                activation["now"] = now_value(self.now)
            elif root not in activation:
                activation[root] = request_value(root, self.request)

    def _compute(self, name: str) -> None:
        """Add a variable, unless it fails or does not exist."""
        if name in self._variables or name in self._failed or name not in self._programs:
            return
        activation = self.activation(self._programs[name])
        try:
            self._variables[name] = self._programs[name].evaluate(activation, self.budget)
        except CelError as error:
            self._failed.add(name)
            self.errors.append(f"{self._policy}: variable `{name}`: {error}")


class RuleContext(PolicyContext, Cycle):
    """A policy's context with the cluster that its rules look at.

    Attributes:
        freshness: which domains of the view are too old to judge by.
        is_stale: whether any is.
        statistics: over nodes, as far as computed, by their text; a reason where one has none.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        request: PlacementRequest,
        view: ClusterView,
        now: Micros,
        freshness: Freshness = FRESH,
        *,
        policy: str = "",
        variables: Mapping[str, Program] = MappingProxyType({}),
        iterations: int = MOST_ITERATIONS,
        column_steps: int | None = None,
    ) -> None:
        """Create the context of a request and a view; see `PolicyContext` for the rest."""
        Cycle.__init__(self, request.pod, view, now)
        super().__init__(
            request,
            now,
            policy=policy,
            variables=variables,
            iterations=iterations,
            column_steps=column_steps,
        )
        self.freshness = freshness
        self.is_stale = bool(freshness.stale)
        self.statistics: dict[str, float | str] = {}
        self._table: NodeTable | None = None
        self._rows: NDArray[np.intp] | None = None
        self._mask = _NO_ROWS

    def on(self, view: ClusterView) -> RuleContext:
        """Return the context of the same request on another view, with a budget of its own.

        The values that expressions read of the request are computed once for all of them.
        """
        context = object.__new__(RuleContext)
        context.__dict__.update(self.__dict__)  # a third of the time of `copy`
        context.view, context.errors, context.statistics = view, [], {}
        context.budget = self._new_budget()
        context._rows = context._table = None
        return context

    @property
    def table(self) -> NodeTable:
        """The nodes as expressions read them."""
        if self._table is None:
            self._table = NodeTable(self.view, self.now, self.request.pod)
        return self._table

    def stale_among(self, domains: Iterable[Domain]) -> Mapping[str, str]:
        """Return those of `domains` that are too old, with texts such as `usage is 95 s old`."""
        return self.freshness.stale_among(domains) if self.is_stale else {}

    def mask_of(self, rows: NDArray[np.intp]) -> BoolColumn:
        """Return rows as a mask, shape (n,); the scores of a policy share one."""
        if rows is not self._rows:
            self._rows, self._mask = rows, np.zeros(len(self.view), np.bool_)
            self._mask[rows] = True
        return self._mask


@lru_cache(maxsize=1024)
def _fields_read(references: frozenset[Reference]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return which variables are read, all but the node, and which fields of each.

    Without fields, a variable is read as a whole.
    """
    fields: dict[str, set[str]] = {}
    for root, *path in _request_references(references):
        fields.setdefault(root, set()).add(path[0] if path else "")
    return tuple(
        (root, () if "" in names else tuple(sorted(names))) for root, names in fields.items()
    )


@lru_cache(maxsize=1024)
def _request_references(references: frozenset[Reference]) -> tuple[Reference, ...]:
    """Return the references to anything but nodes, in order."""
    return tuple(path for path in sorted(references) if path[0] not in {"node", "nodes"})


def request_key(paths: frozenset[Reference], request: PlacementRequest) -> str | None:
    """Return a text that differs whenever values of a request differ that paths lead to.

    Args:
        paths: of programs; those to nodes, variables and the moment do not count.
        request: the request.

    Returns:
        None if the text would be too long.
    """
    activation: dict[str, object] = {}
    for root, fields in _fields_read(paths):
        if root == "pod":
            activation[root] = pod_value(fields or POD_FIELDS, request.pod)
        elif root not in {"variables", "now"}:
            activation[root] = request_value(root, request)
    return memory_key(
        [_followed(path, activation) for path in sorted(paths) if path[0] in activation]
    )


def _followed(path: Reference, activation: Mapping[str, object]) -> tuple[int, object]:
    """Return how many keys of a path could be followed, and the value there.

    A map that lacks the next key counts as empty.
    """
    value: object = activation
    for depth, name in enumerate(path):
        if not isinstance(value, dict):
            return depth, value
        if name not in value:
            return depth, {}
        value = value[name]
    return len(path), value
