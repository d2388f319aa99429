from __future__ import annotations

import asyncio
import threading

import pytest

from webhook.admission.large_pods import LargePods, LargePodsError


async def test_work_is_done_in_another_thread() -> None:
    assert await LargePods().run(threading.get_ident) != threading.get_ident()


async def test_what_the_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        await LargePods().run(fail)


async def test_beyond_the_limit_no_pod_waits_and_afterwards_there_is_room_again() -> None:
    large_pods, go = LargePods(most_waiting=2, seconds=60.0), threading.Event()
    waiting = [asyncio.create_task(large_pods.run(go.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LargePodsError, match="too many"):
        await large_pods.run(go.wait)
    go.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await large_pods.run(lambda: "done") == "done"


async def test_a_pod_that_was_given_up_counts_until_the_thread_has_left_it() -> None:
    large_pods, go = LargePods(most_waiting=1, seconds=0.001), threading.Event()
    with pytest.raises(LargePodsError, match="no time"):
        await large_pods.run(go.wait)
    with pytest.raises(LargePodsError, match="too many"):
        await large_pods.run(go.wait)
    go.set()
    while True:
        try:
            assert await large_pods.run(lambda: "done") == "done"
        except LargePodsError:
            await asyncio.sleep(0)  # the thread has yet to say so
        else:
            break
