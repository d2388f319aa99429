"""The state of a replica: what `/readyz` and `/statusz` show and `stowplan doctor` reads.

Fields that a replica of another version may lack have defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class PoliciesStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The policies in force.

    Attributes:
        digest: the same on every replica with the same policies.
        loaded_at: ISO 8601.
        last_reload_error: why newer files were not loaded; empty if they were.
        holding: names of those that have pods held.
        at_binding: names of those that decide when a pod is bound.
        refused: names of policies of the API that are not in force as they were last written.
    """

    loaded: int
    digest: str
    loaded_at: str = ""
    last_reload_error: str = ""
    holding: tuple[str, ...] = ()
    at_binding: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class ViewStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster as the replica observes it.

    Attributes:
        age_seconds: since the latest contact with any source.
        stale: the sources that are too old for rules to read, each with its age.
    """

    version: int = 0
    nodes: int
    age_seconds: float = 0.0
    stale: tuple[str, ...] = ()


class SourceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One source of the view.

    Attributes:
        required: whether the replica is not ready without it.
        present: whether the cluster has such an API.
        synced: whether all of its objects were read.
        age_seconds: since the latest contact, None if there was none.
        skipped: objects that could not be read.
    """

    name: str
    required: bool
    present: bool
    synced: bool
    age_seconds: float | None = None
    objects: int = 0
    skipped: int = 0
    last_error: str = ""


class CertificateStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The certificate in use.

    Attributes:
        expires_at: ISO 8601.
        is_trusted: whether our webhook configurations trust it, None if that is unknown.
    """

    expires_at: str
    is_trusted: bool | None = None


class HeldStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The held pods as the replica observes them.

    Attributes:
        overdue_seconds: for which the oldest is held beyond its bound, 0 if none is.
        not_holding: why no further pods are held, "" if they are.
    """

    held: int
    overdue_seconds: float = 0.0
    not_holding: str = ""


class BindingStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The bindings that the replica was asked about as the leader, since it started.

    Attributes:
        leads: whether it decides them now.
        kept: pods that stayed where the scheduler bound them.
        moved: pods that went to another node.
        denied: bindings that were denied.
        escaped: pods that were bound without its answer.
        lost: answers that nobody got.
        paused: why no pod is moved just now, "" if pods are.
        reasons: all decisions, by their reason.
        moved_by: the pods that each policy in force moved, or would have in Audit mode.
    """

    leads: bool = False
    kept: int = 0
    moved: int = 0
    denied: int = 0
    escaped: int = 0
    lost: int = 0
    paused: str = ""
    reasons: Mapping[str, int] = {}
    moved_by: Mapping[str, int] = {}


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of one replica.

    Attributes:
        ready: whether new reviews should be sent to it.
        draining: whether it is about to end.
        preparing: whether it fills its caches at the start.
        modes: of placement and quota: Enforce, Audit or Off, of quota also Queue.
        reviews: number answered, by path.
        held: None where pods are never held.
        bindings: None where it is not asked about bindings.
    """

    ready: bool
    draining: bool = False
    preparing: bool = False
    modes: Mapping[str, str] = {}
    reviews: Mapping[str, int] = {}
    policies: PoliciesStatus
    view: ViewStatus
    sources: tuple[SourceReport, ...] = ()
    certificate: CertificateStatus
    held: HeldStatus | None = None
    bindings: BindingStatus | None = None
