from __future__ import annotations

import pytest

from engine.model import api
from engine.model.taints import NO_SCHEDULE, tolerates, untolerated

_TAINT = api.Taint(key="gen", value="5", effect=NO_SCHEDULE)


@pytest.mark.parametrize(
    "toleration",
    [
        api.Toleration(operator="Exists"),
        api.Toleration(key="gen", operator="Exists"),
        api.Toleration(key="gen", operator="Exists", effect="NoSchedule"),
        api.Toleration(key="gen", value="5"),
        api.Toleration(key="gen", operator="Equal", value="5"),
        api.Toleration(value="5"),
        api.Toleration(key="gen", operator="Lt", value="6"),
        api.Toleration(key="gen", operator="Gt", value="-4"),
    ],
)
def test_a_toleration_that_fits_tolerates(toleration: api.Toleration) -> None:
    assert tolerates(toleration, _TAINT)


@pytest.mark.parametrize(
    "toleration",
    [
        api.Toleration(),
        api.Toleration(key="gen"),
        api.Toleration(key="gen", value="6"),
        api.Toleration(key="other", operator="Exists"),
        api.Toleration(key="gen", operator="Exists", effect="NoExecute"),
        api.Toleration(key="gen", operator="Lt", value="5"),
        api.Toleration(key="gen", operator="Gt", value="5"),
        api.Toleration(key="gen", operator="Gt", value="few"),
        api.Toleration(key="gen", operator="exists"),
    ],
)
def test_a_toleration_that_does_not_fit_tolerates_nothing(toleration: api.Toleration) -> None:
    assert not tolerates(toleration, _TAINT)


def test_untolerated_taints_keep_their_order_and_only_some_effects_count() -> None:
    first, second = api.Taint(key="b", effect="E"), api.Taint(key="a", effect="E")
    other = api.Taint(key="c", effect="F")
    assert untolerated([first, other, second], [], ("E",)) == [first, second]
    assert untolerated([first, other], [api.Toleration(key="b", operator="Exists")], ("E",)) == []
