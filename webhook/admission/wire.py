"""AdmissionReview v1 on the wire: what we read of a request, and the answers we write.

Source: Kubernetes, api/admission/v1/types.go and
apiserver/pkg/admission/plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec

from engine.errors import StowplanError
from engine.model import api

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONGEST_ERROR = 300
_LONGEST_UID = 256
_LONGEST_WARNING = 256  # a longer one may be cut by the API server
_MOST_WARNINGS = 16  # 16 x 256: what the API server passes on in all
_LONGEST_AUDIT_VALUE = 512


class AdmissionError(StowplanError):
    """A review that cannot be read: the sender's mistake, answered with 400.

    Its text is short, however large the input: it goes back to the sender and into the log.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_cut(text, _LONGEST_ERROR))


class GroupVersionKind(msgspec.Struct, frozen=True, gc=False):
    """What kind of object a request is about."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(msgspec.Struct, frozen=True, gc=False):
    """Under which resource a request was made."""

    group: str = ""
    version: str = ""
    resource: str = ""


PODS = GroupVersionResource(version="v1", resource="pods")


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The request of a review; objects stay undecoded until someone asks.

    Attributes:
        uid: echoed in the answer.
        name: empty while the API server has yet to generate it.
        namespace: always set for namespaced objects, also where the object's own is still empty.
        dry_run: whether the outcome will be thrown away; then nothing may be remembered.
    """

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_UID)]
    operation: str
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: dict[str, Any] | None = None
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    options: dict[str, Any] | None = None

    @property
    def creates_pod(self) -> bool:
        """Whether a pod itself is being created, not one of its subresources."""
        return self.operation == "CREATE" and self.resource == PODS and not self.sub_resource

    @property
    def changes_pod(self) -> bool:
        """Whether a stored pod is being changed, by way of its `resize` or not."""
        is_pod = self.resource == PODS and self.sub_resource in {"", "resize"}
        return self.operation == "UPDATE" and is_pod

    def pod(self) -> api.Pod:
        """Return the object as a pod.

        Raises:
            AdmissionError: it is not one.
        """
        return _pod_in(self.object, "object")

    def old_pod(self) -> api.Pod:
        """Return the object as a pod as it is stored.

        Raises:
            AdmissionError: it is not one.
        """
        return _pod_in(self.old_object, "old object")

    def variables(self) -> Mapping[str, Any]:
        """Return the fields that expressions may read as `request`, as plain JSON values."""
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
    """Why a request was denied, as the user will read it."""

    code: int
    reason: str
    message: str


class AdmissionResponse(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True
):
    """The answer to a request.

    Attributes:
        patch: an RFC 6902 document; on the wire base64, with `patch_type` beside it.
    """

    uid: str
    allowed: bool
    status: Status | None = None
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
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview.

    Raises:
        AdmissionError: it is not one.
    """
    try:
        review = _reviews.decode(body)
    except _UNREADABLE as error:
        raise AdmissionError(_readable("this is not an AdmissionReview", error)) from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        got = f"{review.api_version} {review.kind}"
        raise AdmissionError(f"expected `{API_VERSION} {KIND}`, not `{got}`")
    if review.request is None:
        raise AdmissionError("the review has no `request`")
    return review.request


def _pod_in(raw: msgspec.Raw, what: str) -> api.Pod:
    try:
        return _pods.decode(raw)
    except _UNREADABLE as error:
        raise AdmissionError(_readable(f"the {what} is not a pod", error)) from error


def encode(response: AdmissionResponse) -> bytes:
    """Return a response inside its AdmissionReview."""
    return _encoder.encode(_ResponseReview(API_VERSION, KIND, response))


def allowed(
    uid: str,
    *,
    operations: Sequence[Mapping[str, Any]] = (),
    warnings: Iterable[str] = (),
    audit_annotations: Mapping[str, str] | None = None,
) -> AdmissionResponse:
    """Return an answer that lets the request pass, changed by `operations` if there are any."""
    return AdmissionResponse(
        uid=uid,
        allowed=True,
        patch=_encoder.encode(operations) if operations else None,
        patch_type="JSONPatch" if operations else None,
        warnings=_bounded(warnings),
        audit_annotations=_audit(audit_annotations),
    )


def denied(
    uid: str, message: str, *, audit_annotations: Mapping[str, str] | None = None
) -> AdmissionResponse:
    """Return an answer that refuses the request; the user reads `message`."""
    return AdmissionResponse(
        uid=uid,
        allowed=False,
        status=Status(code=403, reason="Forbidden", message=message),
        audit_annotations=_audit(audit_annotations),
    )


def _bounded(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return warnings the API server will pass on, in a header: printable, short, few."""
    lines = (_printable(warning) for warning in islice(warnings, _MOST_WARNINGS))
    return tuple(_cut(line, _LONGEST_WARNING) for line in lines)


def _printable(text: str) -> str:
    """Return a text on one line, without the control characters that headers do not take."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())


def _audit(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {key: _cut(value, _LONGEST_AUDIT_VALUE) for key, value in (annotations or {}).items()}


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _readable(what: str, error: Exception) -> str:
    """Return what is wrong with a body, in words."""
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    elif isinstance(error, UnicodeDecodeError):
        reason = "it is not UTF-8 text"
    else:
        reason = str(error)
    return f"{what}: {reason}"
