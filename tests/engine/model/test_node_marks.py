from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.node_marks import is_mark_label, mark_label

LABEL_NAME = re.compile(
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)  # as the API server has it
POLICY_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@given(POLICY_NAMES)
def test_the_label_of_every_policy_is_one_that_a_node_may_have(policy: str) -> None:
    prefix, _, name = mark_label(policy).partition("/")
    assert prefix == "avoid.stowplan.dev"
    assert LABEL_NAME.fullmatch(name)
    assert is_mark_label(mark_label(policy))


@given(st.lists(POLICY_NAMES, unique=True))
def test_no_two_policies_share_a_label(policies: list[str]) -> None:
    assert len(set(map(mark_label, policies))) == len(policies)


def test_long_names_that_begin_alike_are_told_apart() -> None:
    assert mark_label("a" * 63) == f"avoid.stowplan.dev/{'a' * 63}"
    assert mark_label("a" * 64) != mark_label("a" * 65)


@pytest.mark.parametrize("key", ["stowplan.dev/avoid", "avoid.example.com/balanced", "zone"])
def test_labels_of_others_are_no_marks(key: str) -> None:
    assert not is_mark_label(key)
