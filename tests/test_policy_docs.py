"""Pages about policies are what the code says, and what they show works."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import indent

import pytest

from engine.cel import Environment, compile_program
from engine.cel.functions import FUNCTIONS
from engine.documents import Document, read_documents
from engine.plugins import PLUGINS
from engine.policy.compile import compile_policy
from engine.policy_lint import policy_warnings
from tests.engine.policy.worlds import policy
from tests.policy_docs.function_examples import EXAMPLES, MACROS
from tests.policy_docs.functions import FAMILIES, HIDDEN
from tests.policy_docs.pages import PAGES

_DOCS = Path(__file__).parent.parent / "docs"
_CONVERSIONS = [
    cell.replace("\\|", "|")
    for cell in re.findall(
        r"^\|.*\| `(.*)` \|$", (_DOCS / "conversions.md").read_text(encoding="utf-8"), re.MULTILINE
    )
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_code_says(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page](), "run `make docs`"


def test_every_function_has_an_example() -> None:
    names = {name for name, _ in FUNCTIONS if not name.startswith(HIDDEN)}
    assert {name for examples in EXAMPLES.values() for name in examples} == names
    assert EXAMPLES.keys() == FAMILIES.keys()


@pytest.mark.parametrize(
    ("name", "example"),
    [pair for examples in (*EXAMPLES.values(), MACROS) for pair in examples.items()],
)
def test_an_example_of_a_function_is_true(name: str, example: str) -> None:
    assert compile_program(example, Environment()).evaluate({}) is True
    called = re.split(r"[.(]", name)[-1 if name[-1] != ")" else -2]
    assert called.partition("(")[0] in example


@pytest.mark.parametrize("expression", _CONVERSIONS)
def test_a_conversion_is_a_rule_that_lint_has_nothing_against(expression: str) -> None:
    rule = f"- name: r\n  expression: |-\n    {expression}"
    is_condition = re.search(r"[<>!=]|\bin\b|\.is|matches", expression)
    if is_condition and not re.search(r"\bnode\b", expression):
        spec = f"match:\n  matchConditions:\n{indent(rule, '  ')}\nfilters: [{{plugin: LoadAware}}]"
    else:
        spec = f"{'filters' if is_condition else 'scores'}:\n{rule}"
    compiled = policy(spec)
    assert policy_warnings(compiled) == ()


_IN_PAGES = [
    document
    for page in sorted(_DOCS.glob("*.md"))
    if page.name != "lint.md"  # which shows warnings
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if re.search(r"^kind: \w*PlacementPolicy$", text, re.MULTILINE)
    for document in read_documents(text.encode(), page.name)
]


@pytest.mark.parametrize("document", _IN_PAGES, ids=lambda document: document.file)
def test_a_policy_on_a_page_is_one_that_lint_has_nothing_against(document: Document) -> None:
    compiled, problems = compile_policy(document)
    assert compiled is not None, problems
    assert policy_warnings(compiled) == ()


def test_conversions_are_found_in_the_page() -> None:
    assert len(_CONVERSIONS) > 20
    assert len(_IN_PAGES) > 3


def test_the_schema_for_editors_knows_the_args_of_every_plugin() -> None:
    schema = json.loads((_DOCS / "placementpolicy.schema.json").read_text(encoding="utf-8"))
    rules = [schema["$defs"][rule] for rule in ("Filter", "Score")]
    named = {
        each["if"]["properties"]["plugin"]["const"] for rule in rules for each in rule["allOf"]
    }
    assert named == set(PLUGINS)
    references = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert references <= schema["$defs"].keys()
