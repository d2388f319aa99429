"""The parts of a policy that are expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.cel import Program, Reference
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, ScoreRule
from engine.policy.part_places import condition_part, variable_part


@dataclass(frozen=True, slots=True)
class Part:
    """An expression of a policy.

    Attributes:
        name: what warnings call it.
        program: the expression.
        rule: the filter or score that it is, None for a variable or a match condition.
        variable: the name of the variable that it is, "" for none.
    """

    name: str
    program: Program
    rule: FilterRule | ScoreRule | None = None
    variable: str = ""

    @property
    def is_condition(self) -> bool:
        """Whether it is a match condition."""
        return self.rule is None and not self.variable


def parts_of(policy: CompiledPolicy) -> Iterator[Part]:
    """Yield the expressions of a policy: variables, match conditions, filters, scores."""
    for name, program in policy.variables.items():
        yield Part(variable_part(name), program, variable=name)
    for name, program in policy.conditions.items():
        yield Part(condition_part(name), program)
    for rule in policy.rules:
        if isinstance(rule.evaluator, NodeExpression):
            yield Part(rule.name, rule.evaluator.program, rule)


def references_of(policy: CompiledPolicy, program: Program) -> frozenset[Reference]:
    """Return what a program reads, by itself and through variables."""
    found: set[Reference] = set()
    for each in programs_of(policy, program):
        found |= {path for path in each.references if path[0] != "variables"}
    return frozenset(found)


def programs_of(policy: CompiledPolicy, program: Program) -> tuple[Program, ...]:
    """Return a program and those of the variables that it reads, directly or not."""
    found = [program]
    seen: set[str] = set()
    for each in found:
        for path in each.references:
            if path[0] != "variables":
                continue
            names = path[1:2] or tuple(policy.variables)
            new = [name for name in names if name in policy.variables and name not in seen]
            seen.update(new)
            found += (policy.variables[name] for name in new)
    return tuple(found)
