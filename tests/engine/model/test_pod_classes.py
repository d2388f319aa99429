from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.pod_classes import (
    MINIMUM_PRIORITY_ANNOTATION,
    PREEMPTION_ANNOTATION,
    TOLERATION_SECONDS_ANNOTATION,
    PreemptionToleration,
    priority_class_of,
    toleration_of,
)
from engine.model.time import SECOND, Micros

NOW = Micros(1_000 * SECOND)


def test_annotations_say_who_evicts_and_after_how_long() -> None:
    annotations = {MINIMUM_PRIORITY_ANNOTATION: "+100", TOLERATION_SECONDS_ANNOTATION: "-1"}
    assert toleration_of(7, annotations) == PreemptionToleration(100, -1)
    assert toleration_of(7, {}) == PreemptionToleration(8, 0)


@pytest.mark.parametrize("text", ["", "a", "1.5", " 1", "1_0", "0x1", "2147483648", "9" * 99, "²"])
def test_what_is_no_integer_of_32_bits_protects_nobody(text: str) -> None:
    annotations = {MINIMUM_PRIORITY_ANNOTATION: text, TOLERATION_SECONDS_ANNOTATION: "-1"}
    with pytest.raises(ValueError, match="is not an integer of 32 bits"):
        toleration_of(7, annotations)
    wire = api.PriorityClass(metadata=api.ObjectMeta(annotations=annotations), value=7)
    assert priority_class_of(wire).toleration is None


@given(st.text(max_size=70))
def test_no_text_can_do_harm(text: str) -> None:
    annotations = {TOLERATION_SECONDS_ANNOTATION: text}
    wire = api.PriorityClass(metadata=api.ObjectMeta(annotations=annotations), value=7)
    priority_class_of(wire)


def test_a_toleration_ends_after_its_seconds() -> None:
    toleration = PreemptionToleration(100, 60)
    bound = Micros(NOW - 60 * SECOND)
    assert toleration.protects(Micros(bound + 1), 99, NOW)
    assert not toleration.protects(bound, 99, NOW)
    assert not toleration.protects(NOW, 100, NOW)
    assert toleration.protects(None, 99, NOW)
    assert PreemptionToleration(100, -1).protects(Micros(0), 99, NOW)


@pytest.mark.parametrize(
    ("policy", "annotations", "expected"),
    [
        (None, {}, True),
        ("PreemptLowerPriority", {}, True),
        ("Never", {}, False),
        ("Never", {PREEMPTION_ANNOTATION: "WhileHeld"}, True),
        ("Never", {PREEMPTION_ANNOTATION: "true"}, False),
    ],
)
def test_a_class_that_never_preempts_may_while_its_pods_are_held(
    policy: str | None,
    annotations: dict[str, str],
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    wire = api.PriorityClass(
        metadata=api.ObjectMeta(name="batch", annotations=annotations), preemption_policy=policy
    )
    assert priority_class_of(wire).is_preempting is expected
