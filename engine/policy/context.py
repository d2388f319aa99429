"""What one policy knows of one request: the values its expressions read, and what they may cost."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel import Budget, CelError, Program, Reference
from engine.cel.vector import memory_key
from engine.model.request import PlacementRequest
from engine.policy.activation import POD_FIELDS, pod_value, request_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.policy.compiled import CompiledPolicy

MOST_ITERATIONS: Final = 250_000
"""Loop iterations that all expressions of a policy may take for one pod: some 100 ms at worst."""

_NO_ROWS: Final = np.zeros(0, np.bool_)


class PolicyContext:
    """Lives as long as one decision; every value is computed at most once, when it is first read.

    Attributes:
        request: the pod and what the API server says around it.
        errors: what could not be evaluated, a line each, in the order it was met.
        budget: shared by everything that is evaluated here.
    """

    def __init__(self, policy: CompiledPolicy | None, request: PlacementRequest) -> None:
        """Take a policy, None for rules that are not part of one."""
        self.request = request
        self.errors: list[str] = []
        self.budget = Budget(MOST_ITERATIONS, expired=request.expired)
        self._policy = policy
        self._activation: dict[str, object] = {}
        self._pod: dict[str, object] = {}
        self._variables: dict[str, object] = {}
        self._prepared: set[str] = set()  # sources of programs
        self._failed: set[str] = set()
        self._rows: NDArray[np.intp] | None = None
        self._mask = _NO_ROWS

    def activation(self, program: Program) -> dict[str, object]:
        """Return the values that a program reads, all but `node`, and those of others before it.

        A variable that cannot be computed is absent, and noted in `errors`.
        """
        activation = self._activation
        if program.source in self._prepared:
            return activation
        self._prepared.add(program.source)
        for root, fields in _read_of(program.references):
            if root == "variables":
                activation["variables"] = self._variables
                for name in fields or self._variable_names():
                    self._compute(name)
            elif root == "pod":
                activation["pod"] = self._pod
                missing = [name for name in fields or POD_FIELDS if name not in self._pod]
                self._pod |= pod_value(missing, self.request.pod)
            elif root not in activation:
                activation[root] = request_value(root, self.request)
        return activation

    def key_of(self, program: Program) -> str | None:
        """Return a text that is another one where a program reads other values of the request.

        None if it would be too long.
        """
        paths = of_request(program.references)
        if not paths:
            return ""
        activation = self.activation(program)
        return memory_key([_followed(path, activation) for path in paths])

    def mask_of(self, rows: NDArray[np.intp], length: int) -> NDArray[np.bool_]:
        """Return some rows as a mask, shape (length,); the scores of a policy share one."""
        if rows is not self._rows:
            self._rows, self._mask = rows, np.zeros(length, np.bool_)
            self._mask[rows] = True
        return self._mask

    def _variable_names(self) -> list[str]:
        return list(self._policy.variables) if self._policy else []

    def _compute(self, name: str) -> None:
        """Bring a variable into `_variables`, unless it fails."""
        if name in self._variables or name in self._failed or self._policy is None:
            return
        program = self._policy.variables[name]
        try:
            self._variables[name] = program.evaluate(self.activation(program), self.budget)
        except CelError as error:
            self._failed.add(name)
            self.errors.append(f"{self._policy.name}: variable `{name}`: {error}")


@lru_cache(maxsize=1024)
def _read_of(references: frozenset[Reference]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return which variables are read, all but the node, and which fields of each.

    No field stands for a variable that is read as a whole.
    """
    fields: dict[str, set[str]] = {}
    for root, *path in of_request(references):
        fields.setdefault(root, set()).add(path[0] if path else "")
    return tuple(
        (root, () if "" in names else tuple(sorted(names))) for root, names in fields.items()
    )


@lru_cache(maxsize=1024)
def of_request(references: frozenset[Reference]) -> tuple[Reference, ...]:
    """Return what is read of everything but the node, in order."""
    return tuple(path for path in sorted(references) if path[0] != "node")


def _followed(path: Reference, activation: Mapping[str, object]) -> tuple[int, object]:
    """Return how many keys of a path could be followed, and what stands there.

    An empty map stands for any that lacks the next key.
    """
    value: object = activation
    for depth, name in enumerate(path):
        if not isinstance(value, dict):
            return depth, value
        if name not in value:
            return depth, {}
        value = value[name]
    return len(path), value
