"""The standard input of a process of the bench: orders come by it, and its end is the process's."""

from __future__ import annotations

import asyncio
import sys

_LONGEST_LINE = 1 << 20


async def opened() -> asyncio.StreamReader:
    """Return what is written to this process."""
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def until_closed() -> None:
    """Wait until whoever started this process is gone, or wants it to end."""
    await (await opened()).read()
