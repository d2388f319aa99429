"""Names of pods that do not exist yet while a pod is admitted: the API server makes them later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.policy.findings import Finding
from engine.policy_lint.parts import Part
from engine.policy_lint.reads import EQUALITIES, path_of

_NAMES: Final = frozenset({("object", "metadata", "name"), ("pod", "name"), ("request", "name")})
_SEARCHES: Final = frozenset({"contains", "endsWith", "find", "matches", "startsWith"})
_OF_A_REPLICA: Final = re.compile(r"(.+?-)(?:[a-z0-9]{6,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5}")
"""As a ReplicaSet's pod is called: apimachinery pkg/util/rand/rand.go, `SafeEncodeString`."""


def generated_name_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each search in a name that most pods do not have yet."""
    if any(path[-1] == "generateName" for path in part.program.references):
        return
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(function=function, args=(of, *_)) if function in _SEARCHES:
                if path_of(of, {}) in _NAMES:
                    search = unparse(node).removeprefix(unparse(of))
                    hint = f"write `pod.generateName{search}`, or ask for a label"
                    yield Finding(part.name, _message(of), hint, node.offset)
            case ast.Binary(operator=sign, left=of, right=ast.Literal(value=str(name))):
                is_name = sign in EQUALITIES and path_of(of, {}) in _NAMES
                if is_name and (found := _OF_A_REPLICA.fullmatch(name)):
                    negation = "!" if sign == "!=" else ""
                    search = f"{negation}pod.generateName.startsWith('{found[1]}')"
                    hint = f"write `{search}`, or ask for a label"
                    yield Finding(part.name, _message(of), hint, node.offset)


def _message(of: ast.Node) -> str:
    return f"`{unparse(of)}` is empty for pods of a Deployment or a Job: their names come later"
