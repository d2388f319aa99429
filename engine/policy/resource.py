"""Policies that are objects of the API, each compiled by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from engine.documents import document_of
from engine.errors import Diagnostic, InvalidFileError
from engine.model.policy_resource import PolicyResource
from engine.policy.compile import compile_policy
from engine.policy.policy_set import CompiledPolicy

MOST_SPEC_BYTES: Final = 64 * 1024
"""The largest spec that is compiled, as JSON: it takes a second or so; the shipped ones have 1 KiB.

Files may be larger: they belong to whoever installs us. Resources may be written by teams.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledResource:
    """What became of a policy of the API.

    Attributes:
        resource: as it was read.
        policy: None where there are problems.
        problems: every mistake in it, by line and column. The lines are those of the object as YAML
            in the layout of `kubectl get -o yaml`, without what the API server adds; `field` is the
            path of the value.
    """

    resource: PolicyResource
    policy: CompiledPolicy | None
    problems: tuple[Diagnostic, ...] = ()


def compile_resource(resource: PolicyResource) -> CompiledResource:
    """Return the policy of an object of the API, or every mistake in it; never raises."""
    try:
        document = document_of(resource.manifest, resource.path)
    except InvalidFileError as error:
        return CompiledResource(resource=resource, policy=None, problems=error.problems)
    if len(msgspec.json.encode(resource.spec)) > MOST_SPEC_BYTES:
        message = f"the spec is larger than {MOST_SPEC_BYTES} bytes"
        problem = Diagnostic(file=resource.path, field="spec", message=message)
        return CompiledResource(resource=resource, policy=None, problems=(problem,))
    policy, problems = compile_policy(document)
    ordered = sorted(problems, key=lambda problem: (problem.line, problem.column))
    return CompiledResource(resource=resource, policy=policy, problems=tuple(ordered))
