"""Decoding of large pods in parts: nothing holds the interpreter for long.

A decoder holds it until it is done, in whichever thread: some 20 ms for each MiB of containers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import asdict

from engine.model import api


class _Spec(api.PodSpec, frozen=True):
    """A specification whose containers are not decoded."""

    containers: list[msgspec.Raw] | None = None  # type: ignore[assignment]
    init_containers: list[msgspec.Raw] | None = None  # type: ignore[assignment]


class _Pod(api.Pod, frozen=True):
    spec: _Spec = _Spec()


_pod: Final = msgspec.json.Decoder(_Pod).decode
_container: Final = msgspec.json.Decoder(api.Container).decode


def decode_large_pod(raw: bytes | msgspec.Raw) -> api.Pod:
    """Return a pod as `msgspec` decodes an `api.Pod`, with turns for other threads meanwhile.

    Raises:
        msgspec.DecodeError: it is not a pod.
    """
    pod = _pod(raw)
    spec = asdict(pod.spec)
    for name in ("containers", "init_containers"):
        spec[name] = _decoded(spec[name])
    return api.Pod(metadata=pod.metadata, spec=api.PodSpec(**spec), status=pod.status)


def _decoded(containers: Sequence[msgspec.Raw] | None) -> list[api.Container] | None:
    return None if containers is None else [_container(each) for each in containers]
