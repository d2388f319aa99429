from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from webhook.serving.watchdog import Watchdog

ROOT = Path(__file__).parents[3]
HANGING = """
import asyncio, time
from webhook.serving.watchdog import Watchdog, end_process

async def main():
    watch = asyncio.create_task(Watchdog(end_process, most=1).watch())
    await asyncio.sleep(0)
    while True:
        time.sleep(0.01)  # no turn for anything else

asyncio.run(main())
"""


def given_up_at(looks: str) -> list[int]:
    """Return the numbers of the looks at which it gives up; a `t` is a turn, a `.` a look."""
    number, ends = 0, list[int]()
    watchdog = Watchdog(lambda: ends.append(number), most=3)
    for each in looks:
        if each == "t":
            watchdog.turn()
        else:
            number += 1
            watchdog.look()
    return ends


def test_it_gives_up_after_so_many_looks_in_a_row_without_a_turn() -> None:
    assert given_up_at("t....") == [4]  # the first look sees the turn; 2, 3 and 4 see none


def test_a_turn_in_between_starts_the_count_again() -> None:
    assert given_up_at("t...t...t...") == []


def test_a_suspended_process_is_not_taken_for_one_that_hangs() -> None:
    assert given_up_at("t.") == []  # however long it takes from one look to the next


def test_a_process_whose_loop_hangs_ends_and_shows_where() -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", HANGING],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ran.returncode == 70
    assert "time.sleep" in ran.stderr or "in main" in ran.stderr


LOGGING = """
import logging, os, threading
from webhook.serving.watchdog import end_process

logging.getLogger().addHandler(logging.StreamHandler())
reading, writing = os.pipe()
os.dup2(writing, 2)
threading.Thread(target=end_process).start()
os.write(2, bytes(1 << 20))  # nobody reads: stderr takes no more
"""


def test_a_process_that_hangs_as_nobody_reads_its_log_ends_too() -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", LOGGING], cwd=ROOT, check=False, timeout=PATIENCE_SECONDS
    )
    assert ran.returncode == 70
