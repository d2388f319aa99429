"""Policy tests as authors write them: a small cluster, a pod, and the expected decision.

They are a list in `cases.yaml` beside the policies they test.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from pydantic import AwareDatetime, BeforeValidator, Field

from engine.documents import Document, read_documents, validate_model
from engine.errors import Diagnostic, InvalidFileError
from engine.model.decision import Verdict
from engine.model.request import PlacementRequest
from engine.model.time import Micros, micros
from engine.policy.loader import content_of
from engine.policy.rule_schema import Model
from engine.policy_tests.objects import ObjectReader
from engine.view import ClusterState

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
    """A case that can be run.

    Attributes:
        file: the file that holds it.
        state: the cluster; nothing is tracked in it yet.
    """

    file: str
    name: str
    request: PlacementRequest
    state: ClusterState
    now: Micros
    expect: Expectation


def read_cases(
    file: Path, *, now_is_read: bool = False
) -> tuple[tuple[Case, ...], list[Diagnostic]]:
    """Return the cases of a file that can be run, and the mistakes in the others.

    Args:
        file: the file.
        now_is_read: whether expressions of the tested policies read `now`.

    Raises:
        InvalidFileError: it cannot be read at all.
    """
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
