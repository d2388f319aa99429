from __future__ import annotations

import pytest

from webhook.cli.api_errors import reason
from webhook.cluster.client.connection import NO_CONTACT, ApiError

ANOTHER = "is it the right cluster, and in reach? `--kubeconfig` and `--context` name another"


def refusal(status: int) -> ApiError:
    return ApiError(status, "", "why")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            NO_CONTACT,
            f"no contact with the API server: why\nhint: {ANOTHER}",
        ),
        (401, "the API server does not accept our credentials: why"),
        (
            403,
            "it failed: why\nhint: `kubectl auth can-i --list` shows what is permitted",
        ),
        (500, "it failed: why"),
    ],
)
def test_each_failure_has_its_words_and_its_hint(status: int, message: str) -> None:
    assert reason(refusal(status), "it failed") == message


def test_a_command_says_what_may_not_be_done_and_how_to_be_permitted() -> None:
    text = reason(refusal(403), "it failed", forbidden="we may not list pods", hint="look there")
    assert text == "we may not list pods: why\nhint: look there"
