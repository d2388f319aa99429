from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.watch.known_objects import KnownObjects

KEYS = st.sampled_from([f"shop/pod-{number}" for number in range(6)])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["show", "discard"]), KEYS),
    st.tuples(st.sampled_from(["begin", "end"]), st.just("")),
)


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
            for _ in known.begin_list():
                pass
            shown.clear()
        else:
            assert sorted(known.unshown()) == sorted(expected - shown)
            expected &= shown
        assert len(known) == len(expected)
        assert known.shown == len(shown)


def test_a_new_list_begins_without_a_step_for_each_object() -> None:
    known = KnownObjects()
    for number in range(1_000):
        known.show(f"shop/pod-{number}", str)
    assert list(known.begin_list()) == []
    assert known.shown == 0


def test_after_a_list_that_broke_off_only_what_it_showed_takes_steps() -> None:
    known = KnownObjects()
    for number in range(1_000):
        known.show(f"shop/pod-{number}", str)
    list(known.begin_list())
    for number in range(10):
        known.show(f"shop/pod-{number}", str)
    assert len(list(known.begin_list())) == 10
    assert sorted(known.unshown()) == sorted(f"shop/pod-{number}" for number in range(1_000))


def test_the_string_that_others_hold_is_held() -> None:
    known, held = KnownObjects(), "held by others"
    known.show("shop/pod", lambda _: held)
    list(known.begin_list())
    (key,) = known.unshown()
    assert key is held
