"""Examples of all properties, and a process that does not look for garbage among its modules."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.searching import examples

_SETTINGS = "_hypothesis_internal_use_settings"  # where Hypothesis keeps those of a test function

settings.load_profile("test")
gc.disable()  # until everything is imported: none of it is garbage


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Give each property the examples of this run, however many parameters it has."""
    tests = [item for item in items if isinstance(item, pytest.Function)]
    properties = {test.function for test in tests if hasattr(test.function, _SETTINGS)}
    for check in properties:
        given = getattr(check, _SETTINGS)
        setattr(check, _SETTINGS, settings(given, max_examples=examples(given.max_examples)))
    machines = {test.cls for test in tests if test.cls and is_hypothesis_test(test.function)}
    for machine in machines:
        given = machine.settings
        machine.settings = settings(given, max_examples=examples(given.max_examples))


def pytest_collection_finish() -> None:
    """Keep what was imported out of all later rounds of the collector."""
    gc.freeze()
    gc.enable()
