"""The request and the cluster as the rules of one policy see them, for one decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cel import Budget, CelError, Program, Reference
from engine.cel.vector import memory_key
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.policy.activation import POD_FIELDS, now_value, pod_value, request_value
from engine.view import FRESH, BoolColumn, ClusterView, Domain, Freshness

MOST_ITERATIONS: Final = 250_000
"""Loop iterations that all expressions of a policy may take for one pod: some 100 ms at worst."""

_NO_ROWS: Final = np.zeros(0, np.bool_)


class PolicyContext:
    """The values that expressions of a policy read of a request, each computed once, when read.

    Attributes:
        request: the pod, with the fields of its admission request.
        now: the moment of the decision, at which the age of reports is judged, too.
        errors: what could not be evaluated, a line each, in the order of occurrence.
        budget: shared by everything that is evaluated here.
    """

    def __init__(
        self,
        request: PlacementRequest,
        now: Micros,
        *,
        policy: str = "",
        variables: Mapping[str, Program] = MappingProxyType({}),
    ) -> None:
        """Create the context of a request.

        Args:
            request: the request.
            now: the moment of the decision.
            policy: the name of the policy, for error lines.
            variables: the programs of its variables, in order.
        """
        self.request = request
        self.now = now
        self.errors: list[str] = []
        self.budget = Budget(MOST_ITERATIONS, expired=request.expired)
        self._policy = policy
        self._programs = variables
        self._activation: dict[str, object] = {}
        self._pod: dict[str, object] = {}
        self._variables: dict[str, object] = {}
        self._prepared: set[str] = set()  # sources of programs
        self._failed: set[str] = set()

    def activation(self, program: Program) -> dict[str, object]:
        """Return the values that a program reads, all but `node`, and those of others before it.

        A variable that cannot be computed is absent, and noted in `errors`.
        """
        activation = self._activation
        if program.source in self._prepared:
            return activation
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
        return activation

    def key_of(self, program: Program) -> str | None:
        """Return a text that differs whenever a program reads other values of the request.

        None if it would be too long.
        """
        paths = _request_references(program.references)
        if not paths:
            return ""
        activation = self.activation(program)
        return memory_key([_followed(path, activation) for path in paths])

    def _compute(self, name: str) -> None:
        """Add a variable to `_variables`, unless it fails or does not exist."""
        if name in self._variables or name in self._failed or name not in self._programs:
            return
        program = self._programs[name]
        try:
            self._variables[name] = program.evaluate(self.activation(program), self.budget)
        except CelError as error:
            self._failed.add(name)
            self.errors.append(f"{self._policy}: variable `{name}`: {error}")


class RuleContext(PolicyContext):
    """A policy's context with the cluster that its rules look at.

    Attributes:
        view: the nodes.
        freshness: which domains of the view are too old to judge by.
    """

    def __init__(
        self,
        request: PlacementRequest,
        view: ClusterView,
        now: Micros,
        freshness: Freshness = FRESH,
        *,
        policy: str = "",
        variables: Mapping[str, Program] = MappingProxyType({}),
    ) -> None:
        """Create the context of a request and a view; see `PolicyContext` for the rest."""
        super().__init__(request, now, policy=policy, variables=variables)
        self.view = view
        self.freshness = freshness
        self._rows: NDArray[np.intp] | None = None
        self._mask = _NO_ROWS

    def on(self, view: ClusterView) -> RuleContext:
        """Return the context of the same request on another view, with a budget of its own."""
        context = object.__new__(RuleContext)
        context.__dict__.update(self.__dict__)  # a third of the time of `copy`
        context.view, context.errors = view, []
        context.budget = Budget(MOST_ITERATIONS, expired=self.request.expired)
        context._rows = None
        return context

    def stale_among(self, domains: Iterable[Domain]) -> Mapping[str, str]:
        """Return those of `domains` that are too old, with texts such as `usage is 95 s old`."""
        return self.freshness.stale_among(domains) if self.freshness.stale else {}

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
    """Return the references to anything but the node, in order."""
    return tuple(path for path in sorted(references) if path[0] != "node")


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
