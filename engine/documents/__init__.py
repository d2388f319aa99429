"""YAML documents that people write: trees with places, diagnostics, validation against models.

Policies, their tests, settings and recorded clusters are read through here. The meaning of a kind
of document never belongs here.
"""

from engine.documents.places import (
    MOST_BYTES,
    TEMPLATE_HINT,
    TEMPLATE_MESSAGE,
    Composer,
    Document,
    LimitExceededError,
    MapNode,
    Node,
    Path,
    ScalarNode,
    Source,
    document_of,
    fatal_problem,
    index_of,
    left_over,
    read_documents,
    template_hint,
)
from engine.documents.validation import (
    MOST_PROBLEMS,
    Doubt,
    error_text,
    mistake,
    several_mistakes,
    validate_model,
    warn,
)

__all__ = [
    "MOST_BYTES",
    "MOST_PROBLEMS",
    "TEMPLATE_HINT",
    "TEMPLATE_MESSAGE",
    "Composer",
    "Document",
    "Doubt",
    "LimitExceededError",
    "MapNode",
    "Node",
    "Path",
    "ScalarNode",
    "Source",
    "document_of",
    "error_text",
    "fatal_problem",
    "index_of",
    "left_over",
    "mistake",
    "read_documents",
    "several_mistakes",
    "template_hint",
    "validate_model",
    "warn",
]
