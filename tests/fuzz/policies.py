"""What must hold of any text of a policy, and of any expression in one."""

from __future__ import annotations

import json
import time
from typing import Final

from engine.errors import InvalidFileError
from engine.model.decision import PlacementRequest
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from tests.fuzz.corpora import REVIEWS
from tests.webhook.conftest import small_cluster
from webhook.admission import wire
from webhook.placement.placer import Placer

_NAMED: Final = "fuzzed.yaml"
_MOST_TEXT: Final = 64 * 1024  # of the mistakes of one text


class FuzzedPolicies:
    """Loads texts as policies, and decides for one pod by those that are valid."""

    def __init__(self) -> None:
        self._state = small_cluster()
        self._placer = Placer(
            view=self._state.view, now=lambda: Micros(0), scope=Scope(), clock=time.monotonic
        )
        request = wire.decode((REVIEWS / "generate_name.json").read_bytes())
        pod = pod_of(request.pod(), namespace=request.namespace)
        self._request = PlacementRequest(
            pod=pod, raw=bytes(request.object), request=request.variables()
        )

    def check(self, text: bytes) -> None:
        """Load a text, and decide by it.

        Raises:
            AssertionError: its mistakes take too many words. Any other error but that of an invalid
                file is a failure too.
        """
        try:
            policies = load_policies([], {_NAMED: text})
        except InvalidFileError as error:
            mistakes = str(error)
        else:
            self._state.track_sums(policies.sum_profiles)
            self._placer.decide(self._request, policies)
            return
        assert len(mistakes) <= _MOST_TEXT + 4 * len(text), "the mistakes are endless"

    def check_expression(self, text: bytes) -> None:
        """Load a policy with an expression as its filter and as its score, and decide by it."""
        expression = text.decode(errors="replace")
        policy = {
            "apiVersion": "stowplan.dev/v1alpha1",
            "kind": "PlacementPolicy",
            "metadata": {"name": "fuzzed"},
            "spec": {},
        }
        for rules in ("filters", "scores"):
            rule = {"name": "fuzzed", "expression": expression}
            self.check(json.dumps({**policy, "spec": {rules: [rule]}}).encode())
