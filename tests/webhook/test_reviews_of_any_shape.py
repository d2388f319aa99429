from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.hold import RELEASING_ANNOTATION
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from tests.webhook.conftest import ADVISING, DENYING, small_cluster
from tests.webhook.contract import checked_answer, holds, patched
from webhook.admission.handler import ConcurrencyLimiter, ReviewHandler, ReviewLimits
from webhook.admission.hold import GangHolds, PodHolder
from webhook.admission.placement import PlacementReviews
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldPods, HoldGuard, ObservedLease
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

REVIEWS = [
    json.loads(path.read_text())["review"]
    for path in sorted((Path(__file__).parent / "reviews").glob("*.json"))
]

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3)
    ),
    max_leaves=6,
)


class Mutate:
    """The mutating handler over a small cluster, called without a network.

    Args:
        policies: their folder.
        holding: whether it holds pods whose policy releases them in order.
    """

    def __init__(self, policies: Path, *, holding: bool) -> None:
        state = small_cluster()
        loaded = load_policies([policies])
        state.track_sums(loaded.sum_profiles)
        placer = Placer(
            view=state.view,
            now=lambda: Micros(0),
            scope=Scope(),
            clock=time.monotonic,
            explanations=Explanations(9),
        )
        guard = HoldGuard(_Releasing, HeldPods(lambda: Micros(0)))
        holder = (
            PodHolder(
                placer,
                guard,
                queues=lambda _, __: True,
                gangs=GangHolds(state.view, lambda: True),
                now=lambda: Micros(0),
                seconds=60,
                counts=PolicyCounts(),
            )
            if holding
            else None
        )
        placement = PlacementReviews(placer, lambda: loaded, time.monotonic, PolicyCounts(), holder)
        self._handler = ReviewHandler(
            "mutate",
            placement.review,
            fails_open=True,
            limits=ReviewLimits(),
            limiter=ConcurrencyLimiter(9, time.monotonic),
            metrics=Metrics(),
            clock=lambda: 0.0,
        )
        self._runner = asyncio.Runner()

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        response = self._runner.run(self._handled(body))
        assert isinstance(response.body, bytes)
        return response.status, response.body

    def close(self) -> None:
        self._runner.close()

    async def _handled(self, body: bytes) -> web.Response:
        loop = asyncio.get_running_loop()
        stream = StreamReader(mock.create_autospec(BaseProtocol), 2**16, loop=loop)
        stream.feed_data(body)
        stream.feed_eof()
        headers = {"Content-Type": "application/json"}
        request = make_mocked_request("POST", "/mutate", headers, payload=stream)
        return await self._handler.handle(request)


@dataclass(frozen=True, kw_only=True)
class _Releasing(ObservedLease):
    """The Lease of a leader that releases pods."""

    holder: str = "a leader"
    annotations: Mapping[str, str] = field(default_factory=lambda: {RELEASING_ANNOTATION: "true"})
    age_seconds: float = 1.0


@pytest.fixture(scope="module", params=["", "  placement: {releaseInOrder: true}\n"])
def mutate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mutate]:
    folder = tmp_path_factory.mktemp("policies")
    (folder / "advising.yaml").write_text(f"{ADVISING}{request.param}")
    (folder / "denying.yaml").write_text(DENYING)
    one = Mutate(folder, holding=bool(request.param))
    yield one
    one.close()


@st.composite
def distorted_reviews(draw: st.DrawFn) -> dict[str, Any]:
    """Return a review in which one part or more is missing or is something else."""
    review: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(REVIEWS)))
    for _ in range(draw(st.integers(0, 3))):
        holder, key = draw(st.sampled_from(list(_places(review))))
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = draw(JSON_VALUES)
    return review


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any part of any JSON value
    """Yield every item of every map and list inside, with what holds it."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(item)


@settings(max_examples=150)
@given(review=distorted_reviews())
def test_a_distorted_review_is_refused_or_answered_with_a_patch_that_applies_once(
    mutate: Mutate, review: dict[str, Any]
) -> None:
    status, body = mutate.post(json.dumps(review).encode())
    if status == 400:
        assert len(body) < 400
        return
    assert status == 200
    response = checked_answer(review, json.loads(body))
    if "patch" not in response:
        return
    again = patched(review, response)
    assert holds(again["request"]["object"], review["request"]["object"])
    status, body = mutate.post(json.dumps(again).encode())
    assert status == 200
    assert "patch" not in json.loads(body)["response"]


@settings(max_examples=100)
@given(
    review=st.sampled_from(REVIEWS),
    start=st.integers(0, 4_000),
    length=st.integers(0, 50),
    noise=st.binary(max_size=20),
)
def test_a_garbled_body_is_refused_or_answered_but_never_an_error(
    mutate: Mutate, review: dict[str, Any], start: int, length: int, noise: bytes
) -> None:
    body = json.dumps(review).encode()
    status, _ = mutate.post(body[:start] + noise + body[start + length :])
    assert status in {200, 400}


@settings(max_examples=100)
@given(body=st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_review_is_refused(mutate: Mutate, body: bytes) -> None:
    assert mutate.post(body)[0] == 400
