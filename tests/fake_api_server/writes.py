"""Creating, replacing, patching and deleting, with the checks a real API server makes.

Of annotations 256 KiB are too many, and of an object what its storage takes in a request.
Every kind of patch but JSON Patch is applied as a merge patch: server-side apply keeps no field
managers and never conflicts, and a strategic merge replaces lists whole. There are no finalizers,
grace periods or garbage collection, and a namespace need not exist before its objects.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from types import MappingProxyType
from uuid import UUID

import jsonpatch
import jsonpointer
import msgspec

from tests.fake_api_server.resources import Key, Resource, Target
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Object, Store

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_FIRST_PHASES = {"Pod": "Pending", "Namespace": "Active"}
_MOST_ANNOTATION_BYTES = 256 * 1024
_MOST_BYTES = 1536 * 1024
_SYSTEM_METADATA = ("uid", "creationTimestamp", "generation")


class Writer:
    """Writes to a store; what it makes up (uids, suffixes of names) is the same in every run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serial = itertools.count(1)

    def create(self, resource: Resource, obj: Object, *, dry_run: bool = False) -> Object:
        """Store a new object; a uid or creationTimestamp it brings is kept.

        Raises:
            ApiFault: 409 it exists, 422 it has no name or no namespace.
        """
        obj = {**obj, "metadata": dict(obj.get("metadata") or {})}
        metadata = obj["metadata"]
        serial = next(self._serial)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{serial:05x}"
        key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        target = Target(resource, key.namespace, key.name)
        if not key.name or bool(key.namespace) is not resource.namespaced:
            raise target.refusal(422, f"{resource.kind} needs a name and the right namespace")
        if key in self._store.of(resource).objects:
            message = f'{resource.full_name} "{key.name}" already exists'
            raise target.refusal(409, message, "AlreadyExists")
        metadata.setdefault("uid", str(UUID(int=serial)))
        metadata.setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        metadata.setdefault("generation", 1)
        if phase := _FIRST_PHASES.get(resource.kind):
            obj["status"] = {"phase": phase, **(obj.get("status") or {})}
        _check_size(target, obj)
        return obj if dry_run else self._store.write(resource, key, obj)

    def create_sent(self, target: Target, obj: object, *, dry_run: bool) -> Object:
        """Store what a client posted: it may not choose versions, uids, or the status.

        Raises:
            ApiFault: as `create`; 400 for a resourceVersion, or a namespace unlike the path's.
        """
        obj = self._addressed(target, obj)
        if obj["metadata"].pop("resourceVersion", ""):
            raise ApiFault(400, "resourceVersion should not be set on objects to be created")
        for name in _SYSTEM_METADATA:
            obj["metadata"].pop(name, None)
        if target.resource.has_status:
            obj.pop("status", None)
        return self.create(target.resource, obj, dry_run=dry_run)

    def replace(self, target: Target, obj: object, *, dry_run: bool = False) -> Object:
        """Replace an object, or its status; an equal one is not written.

        Raises:
            ApiFault: 404 it does not exist, 409 it has changed since the version given, 422 the
                resource demands a version, 400 the body is of another object.
        """
        obj = self._addressed(target, obj)
        if not obj["metadata"].get("resourceVersion") and not target.resource.blind_update:
            raise target.refusal(422, "metadata.resourceVersion must be specified for an update")
        return self._update(target, self._existing(target), obj, dry_run=dry_run)

    def overwrite(self, resource: Resource, obj: Object) -> Object:
        """Replace an object whole, status included, as no client could.

        Raises:
            ApiFault: 404, 409.
        """
        metadata = obj["metadata"]
        target = Target(resource, metadata.get("namespace", ""), metadata["name"])
        old = self._existing(target)
        _check_preconditions(target, old, metadata)
        return self._write(target, old, obj)

    def patch(self, target: Target, patch: object, content_type: str, *, dry_run: bool) -> Object:
        """Apply a patch; an apply patch creates what does not exist.

        Raises:
            ApiFault: as `replace`; 415 for a kind of patch the resource does not take, 422 for a
                JSON Patch that does not fit the object.
        """
        resource = target.resource
        old = self._store.read(resource, target.key)
        if old is None and content_type == APPLY_PATCH:
            return self.create_sent(target, patch, dry_run=dry_run)
        old = self._existing(target)
        if content_type == JSON_PATCH:
            new = _json_patched(target, old, patch)
        elif content_type in {MERGE_PATCH, APPLY_PATCH} or (
            content_type == STRATEGIC_PATCH and not resource.custom
        ):
            if not isinstance(patch, dict):
                raise ApiFault(400, "a merge patch must be an object")
            new = merged(old, patch)
        else:
            raise ApiFault(415, f"the body of the request was in an unknown format: {content_type}")
        return self._update(target, old, self._addressed(target, new), dry_run=dry_run)

    def delete(self, target: Target, options: object, *, dry_run: bool = False) -> Object:
        """Delete an object; return what a client is told.

        Args:
            target: the object.
            options: DeleteOptions; only its preconditions count.
            dry_run: check everything, delete nothing.

        Raises:
            ApiFault: 404, or 409 where a precondition does not hold.
        """
        old = self._existing(target)
        _check_preconditions(target, old, _preconditions(options))
        if not dry_run:
            self._store.remove(target.resource, target.key)
        details = {
            "name": target.name,
            "group": target.resource.group,
            "kind": target.resource.plural,
            "uid": old["metadata"]["uid"],
        }
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {name: value for name, value in details.items() if value},
        }

    def _existing(self, target: Target) -> Object:
        obj = self._store.read(target.resource, target.key)
        if obj is None:
            raise target.missing()
        return obj

    def _addressed(self, target: Target, obj: object) -> Object:
        """Return sent JSON as an object whose name and namespace are those of the path."""
        if not isinstance(obj, dict):
            raise ApiFault(400, "the body must be an object")
        resource = target.resource
        for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
            if obj.get(field, expected) != expected:
                raise ApiFault(400, f"the {field} in the body does not match the URL")
        metadata = dict(obj.get("metadata") or {})
        for field, expected in (("namespace", target.namespace), ("name", target.name)):
            if expected and metadata.setdefault(field, expected) != expected:
                raise ApiFault(400, f"the {field} in the body does not match the URL")
        return {**obj, "metadata": metadata}

    def _update(self, target: Target, old: Object, new: Object, *, dry_run: bool) -> Object:
        _check_preconditions(target, old, new["metadata"])
        if target.subresource == "status":
            # Of a built-in kind, labels and annotations are written by its status, too.
            metadata = old["metadata"] if target.resource.custom else new["metadata"]
            new = {**old, "metadata": metadata, "status": new.get("status")}
        elif target.resource.has_status:
            new = {**new, "status": old.get("status")}
        return self._write(target, old, new, dry_run=dry_run)

    def _write(self, target: Target, old: Object, new: Object, *, dry_run: bool = False) -> Object:
        # A pod that was put as it is may lack some.
        kept = {
            name: old["metadata"][name]
            for name in (*_SYSTEM_METADATA, "resourceVersion")
            if name in old["metadata"]
        }
        new = {**new, "kind": old["kind"], "apiVersion": old["apiVersion"]}
        new = {name: value for name, value in new.items() if value is not None}
        new["metadata"] = {**new["metadata"], **kept}
        _check_size(target, new)
        if new == old or dry_run:
            return new
        if _desired(new) != _desired(old):
            new["metadata"]["generation"] = kept.get("generation", 1) + 1
        return self._store.write(target.resource, target.key, new)


def _check_size(target: Target, obj: Object) -> None:
    annotations = obj["metadata"].get("annotations") or {}
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MOST_ANNOTATION_BYTES:
        raise target.refusal(
            422, "metadata.annotations: Too long: may not be more than 262144 bytes"
        )
    if len(msgspec.json.encode(obj)) > _MOST_BYTES:
        raise ApiFault(500, "etcdserver: request is too large")


def _preconditions(options: object) -> Object:
    found = options.get("preconditions") if isinstance(options, dict) else None
    return found if isinstance(found, dict) else {}


def merged(old: object, patch: object) -> object:
    """Return `old` under a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


class _GoTest(jsonpatch.TestOperation):
    """A test as the API server's library sees it: a null is also what is not there."""

    def apply(self, obj: object) -> object:
        if self.operation.get("value") is None and self.pointer.resolve(obj, None) is None:
            return obj
        return super().apply(obj)


class _GoPatch(jsonpatch.JsonPatch):
    """A JSON Patch with such tests."""

    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "test": _GoTest})


def _json_patched(target: Target, old: Object, patch: object) -> object:
    if not isinstance(patch, list):
        raise ApiFault(400, "a JSON patch must be a list of operations")
    try:
        new: object = _GoPatch(patch).apply(old)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as misfit:
        raise target.refusal(422, f"the patch does not fit: {misfit}") from misfit
    return new


def _check_preconditions(target: Target, old: Object, expected: Object) -> None:
    """Refuse a write that was meant for another version, or another object of this name."""
    for field in ("resourceVersion", "uid"):
        if expected.get(field, old["metadata"][field]) not in {"", old["metadata"][field]}:
            raise target.refusal(
                409,
                f'Operation cannot be fulfilled on {target.resource.full_name} "{target.name}": '
                f"the {field} is no longer `{expected[field]}`",
            )


def _desired(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in {"metadata", "status"}}
