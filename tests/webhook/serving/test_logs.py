from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from webhook.serving import logs


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


def logged(form: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    logs.configure(level, "json" if form == "json" else "text", stream)
    return logging.getLogger("webhook.some"), stream


def test_a_json_line_carries_what_was_given_beside_the_message() -> None:
    logger, stream = logged("json")
    logger.info("a pod of %s", "shop", extra={"uid": "u-1"})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "webhook.some",
        "message": "a pod of shop",
        "uid": "u-1",
    }


def test_a_json_line_is_one_line_whatever_it_holds() -> None:
    logger, stream = logged("json")
    failure = ValueError("two\nlines")
    logger.error("bad\nthings", exc_info=failure, extra={"odd": object()})
    (line,) = stream.getvalue().splitlines()
    assert "two\nlines" in json.loads(line)["traceback"]


def test_a_text_line_cannot_be_forged_by_a_message() -> None:
    logger, stream = logged("text")
    logger.info("first\n2026 error: second", extra={"uid": "u\n-1"})
    (line,) = stream.getvalue().splitlines()
    assert "first\\n2026" in line
    assert line.endswith("uid=u\\n-1")


def test_a_text_line_is_followed_by_its_traceback() -> None:
    logger, stream = logged("text")
    logger.error("what", exc_info=ValueError("why"))
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("error: what")
    assert rest[-1] == "ValueError: why"


def test_less_important_messages_are_left_out() -> None:
    logger, stream = logged("json", "warning")
    logger.info("by the way")
    assert stream.getvalue() == ""
