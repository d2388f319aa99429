"""Results of policy tests as JUnit XML, which CI systems show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final
from xml.etree.ElementTree import Element, ElementTree, SubElement

from engine.policy_tests import CaseResult, CaseRun

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no document of XML 1.0 may have, however they are written."""


def junit_xml(run: CaseRun) -> ElementTree[Element]:
    """Return a run as XML: a suite for each file of cases, with a test for each case.

    A case that could not be run is an error, as is any other mistake in a file; a policy that no
    case applies is a test that was skipped.
    """
    root = Element("testsuites", name="stowplan test")
    for file, results in groupby(run.results, key=attrgetter("file")):
        _add_suite(root, file, map(_case, results))
    for file, problems in groupby(run.problems, key=attrgetter("file")):
        tests = (
            _test(f"line {found.line}", "error", found.message, str(found)) for found in problems
        )
        _add_suite(root, file, tests)
    if run.untested:
        message = "no case applies this policy"
        _add_suite(root, "policies", (_test(name, "skipped", message) for name in run.untested))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    return ElementTree(root)


def _add_suite(root: Element, name: str, tests: Iterator[Element]) -> None:
    suite = SubElement(root, "testsuite", name=_text(name))
    for test in tests:
        test.set("classname", _text(name))
        suite.append(test)
    suite.set("tests", str(len(suite)))
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(len(suite.findall(f"testcase/{tag}"))))


def _case(result: CaseResult) -> Element:
    if not result.failures:
        return _test(result.name)
    causes = (f"cause: {cause}" for cause in result.causes)
    return _test(result.name, "failure", result.failures[0], "\n".join((*result.failures, *causes)))


def _test(name: str, outcome: str = "", message: str = "", text: str = "") -> Element:
    """Return a test; with an outcome, one that did not pass."""
    test = Element("testcase", name=_text(name))
    if outcome:
        SubElement(test, outcome, message=_text(message)).text = _text(text)
    return test


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
