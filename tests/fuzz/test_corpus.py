"""The corpus, and what mutation makes of it, once through every check: seconds, not hours."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.corpora import recorded
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import NAMES, Name, corpus, target
from tests.fuzz.webhook import FEW, FuzzedWebhook


@pytest.mark.parametrize("name", NAMES)
def test_every_input_of_the_corpus_passes(name: Name) -> None:
    assert corpus(name)
    with target(name) as fuzzed:
        for text in fuzzed.seeds:
            fuzzed.check(text)


def test_reviews_made_of_others_pass(tmp_path: Path) -> None:
    webhook, random, reviews = FuzzedWebhook(tmp_path, FEW), Random(20), recorded()
    for _ in range(300):
        webhook.check(mutated(random.choice(reviews), random, reviews))
    webhook.close()


def test_a_mutation_is_the_same_for_the_same_seed_and_leaves_its_original_alone() -> None:
    reviews = recorded()
    before = json.dumps(reviews)
    bodies = {mutated(reviews[9], Random(seed), reviews) for seed in range(50)}
    assert bodies == {mutated(reviews[9], Random(seed), reviews) for seed in range(50)}
    assert len(bodies) > 40
    assert json.dumps(reviews) == before


@pytest.mark.parametrize("value", [1, "x", None, [], {}])
def test_any_value_can_be_mutated(value: object) -> None:
    json.loads(mutated(value, Random(0), recorded()))
