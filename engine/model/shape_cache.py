"""Results that depend on the shape of a pod, computed once for the pods of a template."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar, TypeVarTuple, Unpack

from engine.model.pod_shape import PodShape

_CACHED_RESULTS: Final = 1024  # of one function: the templates that arrive together
_LARGEST_SHAPE: Final = 8_192  # bytes; a pod of 20 containers with requests and limits takes 7,300

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


def cached_by_shape(
    function: Callable[[PodShape, Unpack[_Args]], _Result],
) -> Callable[[PodShape, Unpack[_Args]], _Result]:
    """Cache the results of a function of a shape; those for large shapes are computed each time.

    A cache keeps the shapes that are its keys, which anyone can make large: so it holds some 8 MiB
    of them at most.
    """
    cached: Callable[[PodShape, Unpack[_Args]], _Result]
    cached = lru_cache(maxsize=_CACHED_RESULTS)(function)  # type: ignore[assignment]

    def result(shape: PodShape, *args: *_Args) -> _Result:
        compute = cached if shape.size <= _LARGEST_SHAPE else function
        return compute(shape, *args)

    return wraps(function)(result)
