"""Options that several commands have, with what `--help` says of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter


def described(text: str) -> Parameter:
    """Return what `--help` says of an option that one command has."""
    return Parameter(help=text)


ClusterPaths: TypeAlias = Annotated[
    list[Path],
    Parameter(consume_multiple=1, help="Recordings of one cluster: files, or folders of them."),
]
"""`--cluster a b` and `--cluster a --cluster b` are the same."""

PolicyPaths: TypeAlias = Annotated[
    list[Path] | None,
    described("Policies: files, folders, or names of policies to start from."),
]
Kubeconfig: TypeAlias = Annotated[Path | None, described("Kubeconfig; else as kubectl finds it.")]
Context: TypeAlias = Annotated[str | None, described("Context of the kubeconfig.")]
Lease: TypeAlias = Annotated[str, described("Lease of the leader, as `NAMESPACE/NAME`.")]
Namespace: TypeAlias = Annotated[
    str, Parameter(name=("--namespace", "-n"), help="Namespace of the pods; all by default.")
]
DefaultNamespace: TypeAlias = Annotated[
    str, Parameter(name=("--namespace", "-n"), help="Namespace of a pod that names none.")
]
Moment: TypeAlias = Annotated[
    datetime | None, described("Time to judge at; by default the latest of the recording.")
]
Json: TypeAlias = Annotated[bool, Parameter(name="--json", help="Print JSON and nothing else.")]
Verbose: TypeAlias = Annotated[
    bool, Parameter(name=("--verbose", "-v"), help="Show more of each policy.")
]
Watch: TypeAlias = Annotated[
    bool, Parameter(help="Run again whenever a file changes, until Ctrl-C.")
]
