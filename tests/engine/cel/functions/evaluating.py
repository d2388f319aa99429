"""Evaluation of expressions in tests of functions."""

from __future__ import annotations

from engine.cel import Budget, Environment, compile_node, new_frame
from engine.cel.check import check
from engine.cel.parser import parse
from engine.cel.values import DYN


def evaluate(source: str, budget: Budget | None = None, **activation: object) -> object:
    """Return the value of an expression; what the checker would refuse fails at run time."""
    environment = Environment(variables=dict.fromkeys(activation, DYN))
    root = check(parse(source), environment).root
    return compile_node(root, environment)(new_frame(activation, budget))
