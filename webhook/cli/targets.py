"""`TYPE/NAME` as kubectl takes it: a pod, or a workload that stands for one of its pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.errors import StowplanError
from engine.model.workload import POD, WORKLOADS, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What `TYPE/NAME` names."""

    workload: Workload | None  # None for a pod
    name: str

    @property
    def group_kind(self) -> tuple[str, str]:
        """Its API group and kind."""
        return ("", POD) if self.workload is None else (self.workload.group, self.workload.kind)

    @property
    def plural(self) -> str:
        """Its resource in paths."""
        return "pods" if self.workload is None else self.workload.plural

    def __str__(self) -> str:
        """Return it as in a sentence: ``Deployment `web` ``."""
        kind = "pod" if self.workload is None else self.workload.kind
        return f"{kind} `{self.name}`"


_POD_NAMES: Final = frozenset({"pod", "pods", "po"})


def _names(workload: Workload) -> frozenset[str]:
    """Return all names of a type that kubectl takes."""
    names = {workload.kind.lower(), workload.plural, workload.short} - {""}
    suffixes = ("", f".{workload.group}", f".v1.{workload.group}")
    return frozenset(f"{name}{suffix}" for name in names for suffix in suffixes)


_WORKLOADS: Final = {name: workload for workload in WORKLOADS for name in _names(workload)}


def target_of(written: str) -> Target:
    """Return what `TYPE/NAME` names."""
    kind, slash, name = written.partition("/")
    if not (slash and kind and name) or "/" in name:
        raise StowplanError(
            f"expected TYPE/NAME, not `{written}`\nhint: such as deploy/web, or the path of a"
            " manifest"
        )
    if kind.lower() in _POD_NAMES:
        return Target(workload=None, name=name)
    workload = _WORKLOADS.get(kind.lower())
    if workload is None:
        kinds = ", ".join(each.plural for each in WORKLOADS)
        raise StowplanError(
            f"there is no file `{written}`, and `{kind}` makes no pods\nhint: the types are pods,"
            f" {kinds}"
        )
    return Target(workload=workload, name=name)
