"""AdmissionReview v1 on the wire: decoding of requests, encoding of responses.

Source: Kubernetes, api/admission/v1/types.go and
apiserver/pkg/admission/plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from engine.errors import StowplanError
from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.model.pod_shape import decode_large_pod
from webhook.background import one_at_a_time
from webhook.cluster.objects import shallow
from webhook.fairness import Shares

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MAX_ERROR = 300
_MAX_UID = 256
_MAX_WARNING = 256  # a longer one may be cut by the API server
_MAX_WARNINGS = 16  # 16 x 256: what the API server passes on in all
_MAX_AUDIT_VALUE = 512

MOST_INLINE_BYTES = 64 * 1024
"""The largest object that is decoded on the event loop: a few milliseconds at most."""

MOST_POD_BYTES = 3 * 1024 * 1024
"""The largest object that is decoded at all, as large as a request that the API server accepts.

The envelope is decoded on the event loop all the same: some 2 ms for each MiB.
"""

_MOST_SHALLOW_BYTES = 128 * 1024  # more would delay other reviews
_BEFORE_OBJECT = b',"object":{'


class AdmissionError(StowplanError):
    """A malformed review; the response has status 400.

    The text is short, however large the input: it goes back to the sender and into the log.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_cut(text, _MAX_ERROR))


class UndecidedError(StowplanError):
    """A review that this replica must not decide; the response has status 503."""


class GroupVersionKind(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


PODS = GroupVersionResource(version="v1", resource="pods")
_BINDINGS = GroupVersionResource(version="v1", resource="bindings")  # the older way, still served


_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=253)]  # as long as Kubernetes allows


class BindingTarget(msgspec.Struct, frozen=True, gc=False):
    """Whom a binding is to: a node."""

    kind: str = ""
    name: _Name = ""

    @property
    def is_node(self) -> bool:
        """Whether it may be one: an API server takes no kind for `Node`."""
        return self.kind in {"", "Node"} and bool(self.name)


class BindingMetadata(msgspec.Struct, frozen=True, gc=False):
    """The pod that is bound, and what is to be written on it."""

    name: _Name = ""
    namespace: _Name = ""
    uid: _Name = ""  # that the pod must have, "" for any
    annotations: dict[str, str] | None = None  # merged into those of the pod


class Binding(msgspec.Struct, frozen=True, gc=False):
    metadata: BindingMetadata
    target: BindingTarget


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The request of a review; its objects are decoded on demand."""

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_UID)]  # repeated in the response
    operation: str
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str = ""
    name: _Name = ""  # empty before the API server has generated it
    # always set for namespaced objects, also where the object's own is still empty
    namespace: _Name = ""
    user_info: dict[str, Any] | None = None
    dry_run: bool | None = None  # whether the object will not be stored; then no trace may remain
    # as it was sent; no bytes at all if the review was too large to be read
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")  # the stored one, likewise
    options: dict[str, Any] | None = None

    @property
    def creates_pod(self) -> bool:
        """Whether a pod is being created, and not one of its subresources."""
        return self.operation == "CREATE" and self.resource == PODS and not self.sub_resource

    @property
    def binds_pod(self) -> bool:
        """Whether a pod is being bound to a node, through `pods/binding` or `bindings`."""
        is_binding = (self.resource == PODS and self.sub_resource == "binding") or (
            self.resource == _BINDINGS and not self.sub_resource
        )
        return self.operation == "CREATE" and is_binding

    @property
    def changes_pod(self) -> bool:
        """Whether a stored pod is being changed, directly, through `resize` or `status`."""
        is_pod = self.resource == PODS and self.sub_resource in {"", "resize", "status"}
        return self.operation == "UPDATE" and is_pod

    @property
    def is_of_quota(self) -> bool:
        """Whether it is about an ElasticQuota, and not one of its subresources."""
        is_quota = self.resource.resource == "elasticquotas" and not self.sub_resource
        return is_quota and self.resource.group in {UPSTREAM_GROUP, KOORDINATOR_GROUP}

    @property
    def is_large(self) -> bool:
        """Whether decoding its objects would delay other reviews."""
        return len(self.object) > MOST_INLINE_BYTES or len(self.old_object) > MOST_INLINE_BYTES

    @property
    def is_too_large(self) -> bool:
        """Whether its objects are too large to be decoded."""
        largest = max(len(self.object), len(self.old_object))
        return largest > MOST_POD_BYTES or not self.object

    def pod(self) -> api.Pod:
        return _pod_in(self.object, "object")

    def old_pod(self) -> api.Pod:
        return _pod_in(self.old_object, "old object")

    def binding(self) -> Binding:
        try:
            return _bindings.decode(self.object)
        except _UNREADABLE as error:
            raise AdmissionError(_error_text("the object is not a binding", error)) from error

    def variables(self) -> Mapping[str, Any]:
        """Fields that expressions may read as `request`, as plain JSON values."""
        return {
            "uid": self.uid,
            "kind": msgspec.to_builtins(self.kind),
            "resource": msgspec.to_builtins(self.resource),
            "subResource": self.sub_resource,
            "requestKind": msgspec.to_builtins(self.request_kind or self.kind),
            "requestResource": msgspec.to_builtins(self.request_resource or self.resource),
            "requestSubResource": self.request_sub_resource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation,
            "userInfo": self.user_info or {},
            "dryRun": bool(self.dry_run),
            "options": self.options or {},
        }


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reason of a denial, shown to the user."""

    code: int
    reason: str
    message: str


class AdmissionResponse(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True
):
    uid: str
    allowed: bool
    status: Status | None = None
    # an RFC 6902 document; on the wire base64, with `patch_type` beside it
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: Sequence[str] = ()
    audit_annotations: Mapping[str, str] = {}


class _RequestReview(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class _ResponseReview(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    response: AdmissionResponse


_reviews = msgspec.json.Decoder(_RequestReview)
_pods = msgspec.json.Decoder(api.Pod)
_bindings = msgspec.json.Decoder(Binding)
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> AdmissionRequest:
    try:
        body.decode()  # the objects inside are only skimmed here, and must be UTF-8 too
        review = _decode_review(body)
    except _UNREADABLE as error:
        raise AdmissionError(_error_text("this is not an AdmissionReview", error)) from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        got = f"{review.api_version} {review.kind}"
        raise AdmissionError(f"expected `{API_VERSION} {KIND}`, not `{got}`")
    if review.request is None:
        raise AdmissionError("the review has no `request`")
    return review.request


def _decode_review(body: bytes) -> _RequestReview:
    try:
        return _reviews.decode(body)
    except RecursionError:  # who creates a pod may write `managedFields` that nest so deeply
        if len(body) > _MOST_SHALLOW_BYTES:
            return _RequestReview(API_VERSION, KIND, decode_beginning(body))
        return _reviews.decode(shallow(body))


def decode_beginning(body: bytes) -> AdmissionRequest:
    """Decode the request of an AdmissionReview of which only the beginning was read.

    The API server writes all that says what a request is about before its objects.
    """
    beginning, found, _ = body.partition(_BEFORE_OBJECT)
    if not found:
        raise AdmissionError("this is not an AdmissionReview, or it is too large")
    return msgspec.structs.replace(decode(beginning + b"}}"), object=msgspec.Raw(b""))


def _pod_in(raw: msgspec.Raw, field: str) -> api.Pod:
    try:
        return decode_large_pod(raw) if len(raw) > MOST_INLINE_BYTES else _pods.decode(raw)
    except _UNREADABLE as error:
        raise AdmissionError(_error_text(f"the {field} is not a pod", error)) from error


def encode(response: AdmissionResponse) -> bytes:
    return _encoder.encode(_ResponseReview(API_VERSION, KIND, response))


def allowed(
    uid: str,
    *,
    patch: bytes = b"",
    warnings: Iterable[str] = (),
    audit_annotations: Mapping[str, str] | None = None,
) -> AdmissionResponse:
    """Response that admits the request, changed by a JSON Patch if there is one."""
    return AdmissionResponse(
        uid=uid,
        allowed=True,
        patch=patch or None,
        patch_type="JSONPatch" if patch else None,
        warnings=_bounded(warnings),
        audit_annotations=_audit(audit_annotations),
    )


def json_patch(operations: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the operations of a JSON Patch; nothing for none."""
    return _encoder.encode(operations) if operations else b""


FORBIDDEN = (403, "Forbidden")
CONFLICT = (409, "Conflict")
"""Of a request that may be repeated: the cluster is not as its sender knew it."""


def denied(
    uid: str,
    message: str,
    *,
    status: tuple[int, str] = FORBIDDEN,
    audit_annotations: Mapping[str, str] | None = None,
) -> AdmissionResponse:
    """Response that denies the request with a message for the user."""
    code, reason = status
    return AdmissionResponse(
        uid=uid,
        allowed=False,
        status=Status(code=code, reason=reason, message=message),
        audit_annotations=_audit(audit_annotations),
    )


def _bounded(warnings: Iterable[str]) -> tuple[str, ...]:
    """Warnings that the API server passes on in headers: printable, short, few."""
    lines = (_printable(warning) for warning in islice(warnings, _MAX_WARNINGS))
    return tuple(_cut(line, _MAX_WARNING) for line in lines)


def _printable(text: str) -> str:
    """Text on one line, without the control characters that are invalid in headers."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())


def _audit(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {key: _cut(value, _MAX_AUDIT_VALUE) for key, value in (annotations or {}).items()}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _error_text(problem: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    elif isinstance(error, UnicodeDecodeError):
        reason = "it is not UTF-8 text"
    else:
        reason = str(error)
    return f"{problem}: {reason}"


_T = TypeVar("_T")

_MOST_WAITING = 4
_SECONDS = 0.75  # below the deadline that the chart's timeout of a quota review leaves


class LargePodsError(Exception):
    """There is no time for another large pod now."""


class LargePods:
    """One thread for large pods: they wait for each other, and for nobody else.

    Each namespace has its share of those that may wait.

    The interpreter runs one thread at a time, in turns: a second thread would make nothing faster.
    """

    def __init__(self, *, most_waiting: int = _MOST_WAITING, seconds: float = _SECONDS) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large pods")
        self._seconds = seconds
        self._waiting = Shares(2 * most_waiting)  # so one alone may have as many

    async def run(self, namespace: str, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which may use nothing that the event loop changes."""
        if not self._waiting.has_room(namespace, 1):
            raise LargePodsError("too many large pods at a time")
        self._waiting.take(namespace, 1)
        future = self._executor.submit(one_at_a_time, work)
        future.add_done_callback(self._done(namespace, asyncio.get_running_loop()))
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise LargePodsError("no time was left for a pod as large as this") from error

    def _done(self, namespace: str, loop: asyncio.AbstractEventLoop) -> Callable[[object], object]:
        """Callback of the thread: a pod that was given up counts until the thread has left it."""

        def leave() -> None:
            self._waiting.take(namespace, -1)

        def done(_: object) -> None:
            loop.call_soon_threadsafe(leave)

        return done
