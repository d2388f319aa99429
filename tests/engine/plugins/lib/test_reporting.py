from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.model.rule_outcomes import RuleInput, Unit
from engine.model.time import SECOND, Micros
from engine.plugins.lib.reporting import reason_codes, reason_texts, report_age
from engine.view import ClusterState
from tests.engine.policy.worlds import node, usage

ROWS = 4
tables = st.integers(1, 70).flatmap(
    lambda n: st.lists(
        st.lists(st.booleans(), min_size=ROWS, max_size=ROWS), min_size=n, max_size=n
    )
)


@given(tables)
def test_a_code_tells_the_complaints_that_were_made(made: list[list[bool]]) -> None:
    codes = reason_codes([np.array(column) for column in made])
    texts = [str(i) for i in range(len(made))]
    for row, code in enumerate(codes.tolist()):
        expected = [text for text, column in zip(texts, made, strict=True) if column[row]]
        if len(made) > 63:  # the last of 63 bits stands for all from there on
            own = [text for text in expected if int(text) < 62]
            expected = [*own, "others"] if own != expected else own
        assert list(reason_texts(code, texts, "others")) == expected


def test_codes_are_positive_and_zero_where_nothing_is_wrong() -> None:
    everything, nothing = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    assert reason_codes([everything] * 80).tolist() == [2**63 - 1]
    assert reason_codes([nothing] * 80).tolist() == [0]


def test_the_age_of_a_report_is_an_input() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_node(node("b"))
    state.set_usage(usage("a", cpu=100))
    view = state.view()
    now = Micros(int(view.metric_time[view.rows["a"]]) + 7 * SECOND)
    age = report_age(view, view.rows["a"], now)
    assert age == RuleInput("report", 7, Unit.SECONDS)
    assert age.describe() == "7 s old"
    assert report_age(view, view.rows["b"], now) == RuleInput("report", text="none")
