from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model.partitioned_dict import PARTS
from webhook.cluster.watch.known_objects import KnownObjects

KEYS = st.sampled_from([f"shop/pod-{number}" for number in range(6)])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["show", "discard"]), KEYS),
    st.tuples(st.sampled_from(["begin", "end"]), st.just("")),
)


def unshown(known: KnownObjects) -> list[str]:
    """Forget what the list has not shown, as at its end."""
    gone = []
    for keys in known.unshown():
        for key in keys:
            known.discard(key)
            gone.append(key)
    return sorted(gone)


@given(st.lists(STEPS, max_size=40))
def test_what_a_list_does_not_show_is_gone_at_its_end(steps: list[tuple[str, str]]) -> None:
    known = KnownObjects()
    expected: set[str] = set()
    shown: set[str] = set()
    for step, key in steps:
        if step == "show":
            known.show(key, str)
            expected.add(key)
            shown.add(key)
        elif step == "discard":
            known.discard(key)
            expected.discard(key)
            shown.discard(key)
        elif step == "begin":
            known.begin_list()
            shown.clear()
        else:
            assert unshown(known) == sorted(expected - shown)
            expected &= shown
        assert len(known) == len(expected)
        assert known.shown == len(shown)


def test_no_step_at_the_end_of_a_list_goes_over_all_objects() -> None:
    # 100 in each part; with a standard deviation of 10
    known = KnownObjects()
    for number in range(100 * PARTS):
        known.show(f"shop/pod-{number}", str)
    known.begin_list()
    steps = [len(keys) for keys in known.unshown()]
    assert len(steps) == PARTS
    assert sum(steps) == 100 * PARTS
    assert max(steps) < 200


def test_the_string_that_others_hold_is_held() -> None:
    known, held = KnownObjects(), "held by others"
    known.show(f"held by {'others'}", lambda _: held)
    known.begin_list()
    known.show(f"held by {'others'}", str)
    known.begin_list()
    (key,) = unshown(known)
    assert key is held
