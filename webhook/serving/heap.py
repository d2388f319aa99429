"""The heap of the C library, told to give back what is not in use.

For glibc; with another C library nothing happens, and nothing breaks.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

_M_MMAP_THRESHOLD: Final = -3  # of `mallopt`, see malloc.h
_LARGE: Final = 256 * 1024  # bytes; what uvloop takes for each TLS connection

_libc: Final = ctypes.CDLL(None)


def keep_large_blocks_apart() -> None:
    """Let each large block be a mapping of its own, which is returned as soon as it is freed.

    By default glibc does so only until the first of them is freed. From then on they come out of
    the heap, where what is allocated between the lists of a start, or between the buffers of many
    connections, keeps all of it from being returned: 10 MiB at a start, 40 MiB after a burst.
    """
    with suppress(AttributeError):
        _libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)


def trim() -> None:
    """Return the pages on which nothing is left; takes some 2 ms after a busy time, else less."""
    with suppress(AttributeError):
        _libc.malloc_trim(0)
