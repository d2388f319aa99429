"""What can be fuzzed: a check of any input, and the inputs to begin with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

from tests.fuzz.corpora import CORPUS, recorded
from tests.fuzz.policies import FuzzedPolicies
from tests.fuzz.webhook import SHIPPED, FuzzedWebhook

Name: TypeAlias = Literal["reviews", "policies", "expressions"]
NAMES: Final[tuple[Name, ...]] = ("reviews", "policies", "expressions")


@dataclass(frozen=True, slots=True)
class Target:
    """Something that takes any input.

    Attributes:
        check: raises an error if a promise is broken.
        seeds: inputs to begin with.
    """

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


@contextmanager
def target(name: Name) -> Iterator[Target]:
    """Give the target of a name, until the block is left."""
    kept = tuple(path.read_bytes() for path in corpus(name))
    if name == "reviews":
        bodies = tuple(json.dumps(review).encode() for review in recorded())
        with TemporaryDirectory() as folder:
            webhook = FuzzedWebhook(Path(folder))
            yield Target(webhook.check, (*bodies, *kept))
            webhook.close()
        return
    policies = FuzzedPolicies()
    if name == "expressions":
        yield Target(policies.check_expression, kept)
        return
    shipped = tuple(path.read_bytes() for path in sorted(SHIPPED.glob("*/policy.yaml")))
    yield Target(policies.check, (*shipped, *kept))


def corpus(name: Name) -> list[Path]:
    """Return the files of the corpus of a target."""
    return sorted((CORPUS / name).iterdir())
