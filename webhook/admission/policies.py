"""Reviews of policies that are resources, when one is created or its spec changes.

A policy that no replica could load is refused with every mistake in it; one that is probably not
meant so is stored with warnings. Whatever is not reviewed, since the webhook fails open, is checked
again when it is loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from engine.errors import Diagnostic, counted
from engine.model.api import NamespacedPlacementPolicy, PlacementPolicy
from engine.model.policy_resource import (
    POLICY_GROUP,
    PolicyKind,
    PolicyResource,
    policy_resource_of,
)
from engine.policy import (
    MOST_COST_OF_A_NAMESPACE,
    TOO_COSTLY_HINT,
    CompiledPolicy,
    compile_resource,
    too_costly,
)
from engine.policy_lint import policy_warnings
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult, ignored
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.cluster.objects import UNREADABLE
from webhook.fairness import FairTurns

MOST_OBJECT_BYTES: Final = 1 << 20
"""The largest object that is decoded: a spec, and as much again for each manager of its fields."""

_LINT_SECONDS = 2.0  # of the ten that the chart gives a review
_MOST_MISTAKES = 20  # that are shown: the first ones of a wrong kind of document will do
_MOST_MESSAGE = 8_192  # characters; kubectl prints all of them
_MOST_WARNINGS = 15  # one less than the API server passes on, for the number of the others

_log = logging.getLogger(__name__)

_Decoder: TypeAlias = (
    msgspec.json.Decoder[PlacementPolicy] | msgspec.json.Decoder[NamespacedPlacementPolicy]
)
_DECODERS: Final[Mapping[str, _Decoder]] = {
    PolicyKind.CLUSTER.plural: msgspec.json.Decoder(PlacementPolicy),
    PolicyKind.NAMESPACED.plural: msgspec.json.Decoder(NamespacedPlacementPolicy),
}


@dataclass(kw_only=True, eq=False)
class PolicyReviews:
    """Answers reviews of policies; changes nothing.

    They are compiled and tried in a thread of their own, those of each namespace in turn, so that
    reviews of pods go on. The interpreter runs one thread at a time: a second one would make
    nothing faster.
    """

    file_names: Callable[[], Collection[str]]  # the policies in force that stand in files
    # what the policies in force for a namespace cost, but for the one of a name
    cost_of_others: Callable[[str, str], int]
    excluded_namespaces: Collection[str]  # those whose pods are never reviewed
    clock: Callable[[], float]  # monotonic seconds

    def __post_init__(self) -> None:
        self._turns = FairTurns()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policies")

    async def review(self, request: AdmissionRequest) -> ReviewResult:
        """Return whether a policy may be stored, with its mistakes or warnings."""
        decoder = _decoder_for(request)
        if decoder is None or request.operation not in {"CREATE", "UPDATE"}:
            return ignored(request)
        if not 0 < len(request.object) <= MOST_OBJECT_BYTES:
            return _refused(request, f"the policy is larger than {MOST_OBJECT_BYTES} bytes")
        # Given up at its deadline, a review that still waits for the thread never begins.
        names, others = frozenset(self.file_names()), 0
        if request.namespace:
            others = self.cost_of_others(request.namespace, request.name)
        work = partial(self._judged, request, decoder, names, others)
        async with self._turns.of(request.namespace):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _judged(
        self,
        request: AdmissionRequest,
        decoder: _Decoder,
        file_names: frozenset[str],
        cost_of_others: int,
    ) -> ReviewResult:
        """Return the verdict; runs in the thread."""
        resource = _resource_in(request, request.object, decoder)
        is_update = request.operation == "UPDATE"
        if is_update and resource.spec == _resource_in(request, request.old_object, decoder).spec:
            return ignored(request)
        is_taken = resource.policy_name in file_names
        if is_taken and not is_update:
            return _refused(request, _mistakes([_name_taken(resource)]))
        compiled = compile_resource(resource)
        if compiled.policy is None:
            return _refused(request, _mistakes(compiled.problems))
        cost = compiled.policy.cost
        if resource.namespace and cost + cost_of_others > MOST_COST_OF_A_NAMESPACE:
            return _refused(request, _mistakes([_too_costly(resource, cost, cost_of_others)]))
        warnings = [
            *self._effect_of_place(resource, is_taken=is_taken),
            # One that has no effect anywhere has none to be warned of.
            *(
                ()
                if resource.namespace in self.excluded_namespaces
                else self._lint(compiled.policy)
            ),
        ]
        admitted = wire.allowed(request.uid, warnings=_counted(warnings))
        return ReviewResult(Outcome.ADMITTED, admitted)

    def _lint(self, policy: CompiledPolicy) -> list[str]:
        end = self.clock() + _LINT_SECONDS
        try:
            return [str(each) for each in policy_warnings(policy, lambda: self.clock() >= end)]
        except Exception:  # noqa: BLE001 - a warning that fails keeps no policy from being stored
            _log.exception("policy `%s` cannot be looked at for warnings", policy.name)
            return []

    def _effect_of_place(self, resource: PolicyResource, *, is_taken: bool) -> Iterator[str]:
        """Yield why a policy has no effect although it is valid."""
        if is_taken:
            yield f"it is not in force: {_name_taken(resource).message}"
        if resource.namespace in self.excluded_namespaces:
            yield f"no pod of namespace `{resource.namespace}` is reviewed: it has no effect"


def _decoder_for(request: AdmissionRequest) -> _Decoder | None:
    """Return the decoder of a policy, None for any other object and for subresources."""
    resource = request.resource
    if resource.group != POLICY_GROUP or request.sub_resource:
        return None
    return _DECODERS.get(resource.resource)


def _resource_in(request: AdmissionRequest, raw: msgspec.Raw, decoder: _Decoder) -> PolicyResource:
    try:
        resource = policy_resource_of(decoder.decode(raw))
    except UNREADABLE as error:
        raise AdmissionError(f"the object is not a policy: {error}") from error
    return replace(resource, namespace=request.namespace, name=resource.name or request.name)


def _name_taken(resource: PolicyResource) -> Diagnostic:
    message = f"a policy in a file has the name `{resource.policy_name}`, and files come first"
    hint = "choose another name, or take the file away (`policies.inline`, `policies.shipped`)"
    return Diagnostic(file=resource.path, field="metadata.name", message=message, hint=hint)


def _too_costly(resource: PolicyResource, cost: int, others: int) -> Diagnostic:
    return Diagnostic(
        file=resource.path, field="spec", message=too_costly(cost, others), hint=TOO_COSTLY_HINT
    )


def _refused(request: AdmissionRequest, message: str) -> ReviewResult:
    return ReviewResult(Outcome.INVALID, wire.denied(request.uid, message))


def _mistakes(problems: Sequence[Diagnostic]) -> str:
    """Return the message of a refusal: how many mistakes there are, then each with its place."""
    count = len(problems)
    shown = "\n".join((counted(count, "mistake"), *map(str, islice(problems, _MOST_MISTAKES))))
    shown = "".join(char if char.isprintable() or char == "\n" else " " for char in shown)
    if count <= _MOST_MISTAKES and len(shown) <= _MOST_MESSAGE:
        return shown
    return f"{shown[:_MOST_MESSAGE]}\n... `stowplan lint` shows all of them"


def _counted(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return as many warnings as are passed on, the last of which counts the others."""
    found = tuple(warnings)
    rest = len(found) - _MOST_WARNINGS
    if rest <= 0:
        return found
    return (*found[:_MOST_WARNINGS], f"... and {rest} more: `stowplan lint` shows them")
