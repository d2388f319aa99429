from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.expected_failures import EXPECTED_FAILURES
from tests.conformance.outcome import UnsupportedError
from tests.conformance.runner import Case, mismatch_of, read_cases

CASES = Path(__file__).parent / "cases"

SUPPORTED = (
    "capacityscheduling",
    "coscheduling",
    "crossnodepreemption",
    "diskio",
    "imagelocality",
    "koordinator_elasticquota",
    "koordinator_estimator",
    "koordinator_limitaware",
    "koordinator_loadaware",
    "networkoverhead",
    "nodeaffinity",
    "noderesources_balancedallocation",
    "noderesources_leastallocated",
    "noderesources_mostallocated",
    "noderesources_requestedtocapacityratio",
    "noderesourcesallocatable",
    "noderesourcetopology",
    "peaks",
    "podrequests",
    "podstate",
    "preemptiontoleration",
    "qossort",
    "quantity",
    "resourcelimitaware",
    "trimaran_loadvariation",
    "trimaran_lowrisk",
    "trimaran_targetloadpacking",
)
"""The files whose every case passes, but for the expected failures. Add yours.

What the program does not do by design is skipped, with the reason."""


def _parameters() -> list[object]:
    return [
        pytest.param(
            case,
            id=f"{case.file}/{case.stage}/{case.label}",
            marks=[pytest.mark.xfail(reason=reason, strict=True)] if reason else [],
        )
        for file in SUPPORTED
        for case in read_cases(CASES / f"{file}.json")
        for reason in [EXPECTED_FAILURES.get(case.key)]
    ]


@pytest.mark.parametrize("case", _parameters())
def test_the_engine_agrees_with_the_case(case: Case) -> None:
    try:
        wrong = mismatch_of(case)
    except UnsupportedError as error:
        pytest.skip(str(error))
    assert wrong is None
