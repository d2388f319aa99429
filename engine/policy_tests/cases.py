"""Policy tests as authors write them: a small cluster, a pod, and the expected decision.

They are a list in `cases.yaml` beside the policies they test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Self, cast

import msgspec
from pydantic import AwareDatetime, BeforeValidator, Field, model_validator

from engine import documents
from engine.builtin_admission import BuiltinAdmission
from engine.documents import Document, mistake, read_documents, validate_model
from engine.errors import Diagnostic, InvalidFileError, did_you_mean
from engine.model import api
from engine.model.decision import PlacementRequest, Verdict
from engine.model.elastic_quota import ElasticQuota
from engine.model.kinds import DEFAULT_NAMESPACE, KINDS, AuxObject, Kind
from engine.model.namespace import Namespace
from engine.model.node import Node
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage
from engine.model.workload import (
    POD,
    WORKLOADS,
    pod_of_workload,
    value_at,
    workload_of,
)
from engine.policy.loader import content_of
from engine.policy.schema import Model
from engine.view import ClusterState

_KINDS: Final = {kind.kind: kind for kind in KINDS if kind.case_list}
_BY_LIST: Final = {kind.case_list: kind for kind in _KINDS.values()}

_KIND_HINT: Final = "say of which kind, as `kind: Deployment`"
_POD_KINDS_HINT: Final = f"write a Pod, or a {', '.join(each.kind for each in WORKLOADS)}"
_STEP = re.compile(r"\.([^.\[\]`]+)|\[([0-9]+)\]")
_MISMATCH = re.compile(r"Expected `([^`]*)`, got `[^`]*`")
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "int": "a whole number",
    "object": "a mapping",
    "str": "a text",
}


class ObjectReader:
    """Puts objects into a cluster."""

    def __init__(self, now: Micros) -> None:
        self.state = ClusterState()  # the cluster
        self.problems: list[Diagnostic] = []  # the mistakes in the objects
        self._now = now

    def read_file(self, file: Path) -> None:
        """Read the cluster that a file holds."""
        try:
            documents = read_documents(content_of(file), str(file))
        except InvalidFileError as error:
            self.problems += error.problems
            return
        for document in documents:
            self.read_cluster(document.value, document, ())

    def read_cluster(self, value: object, document: Document, at: documents.Path) -> None:
        """Read a cluster: a list of objects per kind, or all in one as kubectl prints them."""
        if not isinstance(value, dict):
            self.problems.append(document.problem(at, "expected lists of Kubernetes objects"))
            return
        if "items" in value:
            self._read_list(value["items"], None, document, (*at, "items"))
            return
        for key, items in value.items():
            place = (*at, key)
            if key in _BY_LIST:
                self._read_list(items, _BY_LIST[key], document, place)
            else:
                hint = did_you_mean(key, _BY_LIST)
                problem = document.problem_at_key(place, f"unknown key `{key}`", hint=hint)
                self.problems.append(problem)

    def read_pod(
        self, value: object, document: Document, at: documents.Path
    ) -> tuple[Pod, Mapping[str, Any]] | None:
        """Return a pod with its manifest; it does not become part of the cluster.

        Of a workload that is a pod of its template. Both are as the API server hands them to
        webhooks.
        """
        template_path = _template_in(value)
        if template_path:
            problem = document.problem((*at, *template_path), "this is not a Pod", hint=_KIND_HINT)
            self.problems.append(problem)
            return None
        fields: dict[str, Any] = value if isinstance(value, dict) else {}
        workload = workload_of(fields.get("apiVersion"), fields.get("kind"))
        template = () if workload is None else workload.template
        if workload is not None and not isinstance(value_at(fields, template), dict):
            message = f"a {workload.kind} needs `{'.'.join(template)}`"
            self.problems.append(document.problem((*at, *template), message))
            return None
        manifest = fields if workload is None else pod_of_workload(fields, workload)
        if self._made(manifest, _KINDS[POD], document, (*at, *template)) is None:
            return None
        admission = BuiltinAdmission(self.state.view().extras.values())
        admitted = admission.admit(manifest, namespace=DEFAULT_NAMESPACE).manifest
        return pod_of(msgspec.convert(admitted, api.Pod)), admitted

    def _read_list(
        self, items: object, kind: Kind | None, document: Document, at: documents.Path
    ) -> None:
        """Read objects of one kind, or each of the kind it names, if that is known."""
        if not isinstance(items, list):
            self.problems.append(document.problem(at, "expected a list"))
            return
        for index, item in enumerate(items):
            own = kind or (_KINDS.get(str(item.get("kind"))) if isinstance(item, dict) else None)
            made = own and self._made(item, own, document, (*at, index))
            if own is not None and made is not None:
                self._put(made)

    def _put(self, model: object) -> None:
        match model:
            case Node():
                self.state.set_node(model)
            case Pod():
                self.state.set_pod(model, seen_at=self._now)
            case Namespace():
                self.state.set_namespace(model.name, model.labels, quota_mode=model.quota_mode)
            case ElasticQuota():
                self.state.set_quota(model)
            case NodeUsage():
                self.state.set_usage(model)
            case _:
                self.state.set_extra(cast("AuxObject", model))

    def _made(self, value: object, kind: Kind, document: Document, at: documents.Path) -> Any:  # noqa: ANN401 - what `kind` makes
        own = value.get("kind", kind.kind) if isinstance(value, dict) else kind.kind
        if own != kind.kind:
            hint = _POD_KINDS_HINT if kind.kind == POD else ""
            problem = document.problem((*at, "kind"), f"`{own}` is not `{kind.kind}`", hint=hint)
            self.problems.append(problem)
            return None
        try:
            return kind.decode(msgspec.convert(value, kind.wire))
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at ")
            steps = (int(index) if index else key for key, index in _STEP.findall(place))
            problem = document.problem((*at, *steps), _MISMATCH.sub(_in_words, message))
        except ValueError as error:
            problem = document.problem(at, str(error))
        self.problems.append(problem)
        return None


def _template_in(value: object) -> documents.Path:
    """Return the path of the pod template in a workload that has no `kind`, () without one."""
    spec = value.get("spec") if isinstance(value, dict) and "kind" not in value else None
    if not isinstance(spec, dict):
        return ()
    return next((("spec", key) for key in ("template", "jobTemplate") if key in spec), ())


def _in_words(mismatch: re.Match[str]) -> str:
    kinds = mismatch[1].split(" | ")
    return f"expected {' or '.join(_WORDS.get(kind, kind) for kind in kinds)}"


_ANY_MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment of cases that no age matters to."""
_NO_LIST: Final = "expected one list of cases"
_A_LIST: Final = "the file is a list; a case begins with `- name: ..`"


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Expectation(Model):
    """The expected decision of a case; anything not listed is not checked."""

    verdict: Annotated[
        Verdict | None, Field(description="`Place`, `Abstain` (nothing to say) or `Deny`.")
    ] = None
    message: Annotated[str | None, Field(description="Part of the decision's message.")] = None
    best: Annotated[
        tuple[str, ...],
        BeforeValidator(_one_or_more),
        Field(description="The node with the most points, or all nodes that share them."),
    ] = ()
    order: Annotated[
        tuple[str, ...],
        Field(description="Nodes in order: each has more points than the next."),
    ] = ()
    rejected: Annotated[
        dict[str, str],
        Field(
            default_factory=dict,
            description="Rejected nodes, each with a part of `rule: reason`.",
        ),
    ]
    scores: Annotated[
        dict[str, dict[str, int]],
        Field(default_factory=dict, description="Points (0..100) by score and node."),
    ]
    errors: Annotated[
        tuple[str, ...], Field(description="Parts of the errors that must be reported.")
    ] = ()

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if not any(dict(self).values()):
            raise mistake(
                "the case expects nothing, so it passes whatever the policies say",
                "expect a `verdict`, such as `Place`, the `best` node, or the `rejected` nodes",
            )
        return self


class WrittenCase(Model):
    """A case as it stands in the file."""

    name: Annotated[str, Field(min_length=1, description="Name of the case, as a sentence.")]
    cluster: Annotated[
        Any,
        Field(
            description="Lists of Kubernetes objects: `nodes`, `pods`, `nodeMetrics`,"
            " `namespaces`, `elasticQuotas`, `podDisruptionBudgets`,"
            " `nodeResourceTopologies`, `appGroups`, `networkTopologies`,"
            " `nodeDiskIOStats`, `limitRanges`, `priorityClasses`, `deviceClasses` and"
            " `runtimeClasses`; or objects as `kubectl get -o yaml` prints them; or"
            " the name of a file with either, next to the cases."
        ),
    ]
    pod: Annotated[
        dict[str, Any],
        Field(
            description="The pod that is created; of a Deployment, StatefulSet, DaemonSet,"
            " ReplicaSet, Job or CronJob, one pod of its template. The API server's"
            " defaults are added."
        ),
    ]
    request: Annotated[
        dict[str, Any],
        Field(
            default_factory=dict, description="More of the admission request, such as `userInfo`."
        ),
    ]
    now: Annotated[
        AwareDatetime | None,
        Field(
            description="The time of the decision, such as `2026-01-01T00:00:00Z`; only needed"
            " with reports of usage, and for expressions that read `now`."
        ),
    ] = None
    expect: Annotated[Expectation, Field(description="The expected decision.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case that can be run."""

    file: str  # the file that holds it
    name: str
    request: PlacementRequest
    state: ClusterState  # the cluster; nothing is tracked in it yet
    now: Micros
    expect: Expectation


def read_cases(
    file: Path, *, now_is_read: bool = False
) -> tuple[tuple[Case, ...], list[Diagnostic]]:
    """Return the cases of a file that can be run, and the mistakes in the others."""
    documents = read_documents(content_of(file), str(file))
    if not documents:
        raise InvalidFileError([Diagnostic(file=str(file), message=_NO_LIST, hint=_A_LIST)])
    document = documents[-1]
    if len(documents) > 1 or not isinstance(document.value, list) or not document.value:
        raise InvalidFileError([document.problem((), _NO_LIST, hint=_A_LIST)])
    cases: list[Case] = []
    problems: list[Diagnostic] = []
    for index, item in enumerate(document.value):
        written, found = validate_model(WrittenCase, item, document, (index,))
        problems += found
        if written is not None:
            case, found = _prepared(written, document, index, file.parent)
            if written.now is None:
                found += _moment_missing(case, document, index, now_is_read=now_is_read)
            problems += found
            cases += [case] if case and not found else []
    return tuple(cases), problems


def _moment_missing(
    case: Case | None, document: Document, index: int, *, now_is_read: bool
) -> list[Diagnostic]:
    """Return the problem of a case without `now` where ages count."""
    is_measured = case is not None and any(case.state.view().usages)
    if not is_measured and not now_is_read:
        return []
    hint = "reports are as old as it makes them" if is_measured else "an expression reads it"
    return [document.problem((index,), "missing key `now`", hint=hint)]


def _prepared(
    written: WrittenCase, document: Document, index: int, folder: Path
) -> tuple[Case | None, list[Diagnostic]]:
    """Return a case with its objects read, or None and the mistakes in them."""
    now = micros(written.now or _ANY_MOMENT)
    reader = ObjectReader(now)
    if isinstance(written.cluster, str):
        reader.read_file(folder / written.cluster)
    else:
        reader.read_cluster(written.cluster, document, (index, "cluster"))
    read = reader.read_pod(written.pod, document, (index, "pod"))
    if read is None or reader.problems:
        return None, reader.problems
    pod, manifest = read
    request = PlacementRequest(
        pod=pod,
        raw=msgspec.json.encode(manifest),
        namespace_labels=reader.state.view().namespaces.labels.get(pod.namespace, {}),
        request={"operation": "CREATE", "namespace": pod.namespace, **written.request},
    )
    case = Case(
        file=document.file,
        name=written.name,
        request=request,
        state=reader.state,
        now=now,
        expect=written.expect,
    )
    return case, []
