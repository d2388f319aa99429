"""The pages, by the files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.policy_docs.editor_schema import editor_schema
from tests.policy_docs.fields import field_reference
from tests.policy_docs.functions import function_reference
from tests.policy_docs.names import name_reference

_DOCS: Final = Path(__file__).parents[2] / "docs"

PAGES: Final[Mapping[Path, Callable[[], str]]] = {
    _DOCS / "cel-environment.md": name_reference,
    _DOCS / "cel-functions.md": function_reference,
    _DOCS / "placementpolicy.schema.json": editor_schema,
    _DOCS / "policy-fields.md": field_reference,
}
