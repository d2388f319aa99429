"""Patterns: texts that are looked for in names and labels, and what these never hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.cel.values import STRING
from engine.documents import left_over
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import ANY, LABELS, Part, ReadPath, Reads, path_text

_ANCHORED: Final = re.compile(r"\^.*|.*\$|\.\*.*\.\*", re.DOTALL)
_GLOB: Final = re.compile(r"\^?([-A-Za-z0-9_]*[-A-Za-z0-9_/])\*([-A-Za-z0-9_]*)\$?")
_FLAGS: Final = re.compile(r"\(\?[a-z]+\)")
_SLASHED: Final = re.compile(r"/(.*)/")
_SIGNS: Final = re.compile(r"[\\^$*+?|(\[]")
_CHOICE: Final = re.compile(r"\((?:[^()]|\([^()]*\))*\)")


def control_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each escape that is another sign to a text than to a pattern."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Literal(value=str(text)) if found := _CONTROL.search(text):
                escape = _ESCAPES[found[0]]
                meant = unparse(replace(node, value=_CONTROL.sub(_as_escape, text)))
                message = f"`{escape}` in a text is a control character, not part of a pattern"
                yield Finding(part.name, message, f"below a `|-` write `{meant}`", node.offset)


def _as_escape(found: re.Match[str]) -> str:
    return _ESCAPES[found[0]]


_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
_CONTROL: Final = re.compile("[\a\b\f\v]")


def pattern_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each pattern that is found anywhere in a string, or stands before it."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(
                function="matches", args=(ast.Literal(value=str(pattern)) as literal, text)
            ) if _SIGNS.search(pattern) and not isinstance(text, ast.Literal):
                message = f"`{unparse(text)}` is the pattern here, and `{pattern}` the text"
                turned = replace(node, args=(text, literal))
                yield Finding(part.name, message, f"write `{unparse(turned)}`", node.offset)
            case ast.Call(
                function="matches", args=(of, ast.Literal(value=str(pattern)) as literal)
            ) if not _CONTROL.search(pattern):
                if glob := _GLOB.fullmatch(pattern):
                    message = f"in a pattern `*` repeats the sign before it: `{pattern}`"
                    anything = replace(literal, value=f"^{glob[1]}.*{glob[2]}$")
                    hint = f"write `{unparse(replace(node, args=(of, anything)))}`"
                    yield Finding(part.name, message, hint, literal.offset)
                    continue
                ends = [(each[:1] == "^", each[-1:] == "$") for each in pattern.split("|")]
                if len(set(ends)) > 1 and "(" not in pattern:
                    start, end = "^" if ends[0][0] else "", "$" if ends[-1][1] else ""
                    inner = pattern.removeprefix("^").removesuffix("$")
                    meant = replace(literal, value=f"{start}({inner}){end}")
                    hint = f"write `{unparse(replace(node, args=(of, meant)))}`"
                    message = "`^` and `$` belong to the choice beside them alone"
                    yield Finding(part.name, message, hint, literal.offset)
                    continue
                if not pattern or _ANCHORED.fullmatch(_FLAGS.sub("", pattern)):
                    continue
                if slashed := _SLASHED.fullmatch(pattern):
                    meant = replace(literal, value=slashed[1])
                    hint = f"write `{unparse(replace(node, args=(of, meant)))}`"
                    message = "a pattern has no slashes around it"
                    yield Finding(part.name, message, hint, literal.offset)
                    continue
                inner = pattern.removeprefix(".*").removesuffix(".*")
                has_choice = "|" in _CHOICE.sub("", pattern)
                whole = f"^({pattern})$" if has_choice else f"^{pattern}$"
                anchored = ast.Literal(whole, STRING, offset=0)
                yield Finding(
                    part.name,
                    f"`{pattern}` is found anywhere in the string, also in `x{pattern}x`"
                    if pattern.isalnum()
                    else f"`{pattern}` is found anywhere in the string",
                    f"for the whole string write `{unparse(replace(node, args=(of, anchored)))}`,"
                    f" for a part of it `.*{inner}.*`",
                    literal.offset,
                )


def dot_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each dot of an address in a pattern."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(
                function="matches", args=(of, ast.Literal(value=str(pattern)) as literal)
            ) if _ADDRESS.search(pattern):
                meant = replace(literal, value=_ADDRESS.sub(_escaped, pattern))
                hint = f"write `{unparse(replace(node, args=(of, meant)))}`"
                message = "in a pattern `.` stands for any sign"
                yield Finding(part.name, message, hint, literal.offset)


def _escaped(found: re.Match[str]) -> str:
    return found[0].replace(".", r"\.")


_ADDRESS: Final = re.compile(
    r"(?<![\\\w])(?:[0-9]{1,3}(?:\.[0-9]{1,3})+|[a-z][-a-z0-9]+(?:\.[a-z][-a-z0-9]+){2,})"
)
_CASES: Final = {"lowerAscii": str.lower, "upperAscii": str.upper}


def case_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each text that one in small, or in capital, letters never is."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Binary(operator="==" | "!=" | "in", left=left, right=right):
                pairs = [(left, each) for each in (right, *ast.children(right))] + [(right, left)]
            case ast.Call(function=function, args=(of, text)) if function in _TEXT_SEARCHES:
                pairs = [(of, text)]
            case _:
                continue
        for of, text in pairs:
            if isinstance(of, ast.Call) and isinstance(text, ast.Literal):
                in_case, value = _CASES.get(of.function), text.value
                if in_case is not None and isinstance(value, str) and value != in_case(value):
                    message = f"`{unparse(of)}` never has `{value}` in it"
                    yield Finding(part.name, message, f"write `'{in_case(value)}'`", text.offset)


_TEXT_SEARCHES: Final = frozenset({"contains", "endsWith", "startsWith"})
_OF_NAMES: Final = frozenset({("node", "name"), ("pod", "name"), ("pod", "namespace")})
_VALUES_OF_TAINTS: Final = frozenset(
    {("node", "taints", ANY, "value"), ("pod", "tolerations", ANY, "value")}
)
_FOREIGN: Final = re.compile(r"[^-A-Za-z0-9_.]")
_WILDCARD: Final = re.compile(r"(\^?)([-A-Za-z0-9_.]*)([*%]?)")


def alphabet_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each text with a sign that the names and labels of objects never have."""
    reads = Reads(part.program.root)
    searches = [each for each in reads.searches if each.operator in _TEXT_SEARCHES]
    for compared in (*reads.comparisons, *searches):
        path, value = compared.path, compared.literal.value
        is_name = path in _OF_NAMES
        is_value = path in _VALUES_OF_TAINTS or path[:-1] in LABELS
        if not isinstance(value, str) or not (is_name or is_value):
            continue
        if left_over(value) or path[-1] == ANY:
            continue
        if found := _FOREIGN.search(value):
            hint = _pattern_hint(path, value)
            message = f"`{path_text(path)}` never has `{found[0]}`"
            yield Finding(part.name, message, hint, compared.literal.offset)
        elif is_name and value != value.lower():
            message = f"`{path_text(path)}` has lower-case letters alone"
            hint = f"write `'{value.lower()}'`"
            yield Finding(part.name, message, hint, compared.literal.offset)


def _pattern_hint(path: ReadPath, value: str) -> str:
    """Return how to look for what is written as a pattern."""
    if not value.strip("*") and path not in _OF_NAMES:
        return f"for any value write `'{path[-1]}' in {path_text(path[:-1])}`"
    if value.strip() != value and not _FOREIGN.search(value.strip()):
        return f"write `'{value.strip()}'`"
    if "," in value:
        each = ", ".join(f"'{part.strip()}'" for part in value.split(","))
        return f"a list is written `[{each}]`"
    found = _WILDCARD.fullmatch(value)
    if found is None or not found[2]:
        pattern = value.replace("*", ".*") if "*" in value else ""
        return f"a pattern is written `.matches('^{pattern}$')`" if pattern else ""
    return f"there are no patterns: write `{_written(path)}.startsWith('{found[2]}')`"


def _written(path: ReadPath) -> str:
    """Return how a value is read that may be absent."""
    *parent, key = path
    return (
        f"{path_text(tuple(parent))}[?'{key}'].orValue('')"
        if path not in _OF_NAMES
        else path_text(path)
    )
