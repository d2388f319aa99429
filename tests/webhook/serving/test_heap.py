"""The heap is one of a process, so each test has a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys
from textwrap import dedent

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")


def printed_by(program: str) -> list[int]:
    command = [sys.executable, "-c", dedent(program)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    return [int(number) for number in told.stdout.split()]


def test_a_large_block_is_apart_though_one_was_freed_before() -> None:
    before, meanwhile, after = printed_by("""
        import ctypes
        from webhook.serving import heap

        class Told(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks")]
            _fields_ += [(f"other{number}", ctypes.c_size_t) for number in range(6)]

        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = Told
        heap.keep_large_blocks_apart()
        bytearray(2**22)
        print(mallinfo().hblks)
        block = bytearray(2**20)
        print(mallinfo().hblks)
        del block
        print(mallinfo().hblks)
    """)
    assert (meanwhile, after) == (before + 1, before)


def test_what_is_free_between_what_is_not_is_returned() -> None:
    before, after = printed_by("""
        from pathlib import Path
        from webhook.serving import heap

        def pages() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1])

        blocks = [bytearray(b"x" * 2**16) for _ in range(300)]
        del blocks[:-1]  # the last one is above all that is free
        print(pages())
        heap.trim()
        print(pages())
    """)
    assert before - after > 200 * 16  # most of 299 blocks of 16 pages
