"""How often Python functions are called, for tests of what is not done again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Calls:
    """Calls so far; each step of a generator is one."""

    count: int = 0


@contextmanager
def counted_calls(*functions: Callable[..., object]) -> Iterator[Calls]:
    """Count the calls of functions in this thread until the block is left."""
    codes = {function.__code__ for function in functions}
    calls = Calls()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        del arg
        calls.count += event == "call" and frame.f_code in codes

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)
