from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webhook.background import fingerprint, on_change, one_at_a_time


def test_untouched_files_look_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    assert fingerprint([tmp_path]) == fingerprint([tmp_path])


def test_new_text_new_files_and_lost_files_show(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    seen = {fingerprint([tmp_path])}
    (tmp_path / "a").write_text("longer")
    seen.add(fingerprint([tmp_path]))
    (tmp_path / "b").write_text("")
    seen.add(fingerprint([tmp_path]))
    (tmp_path / "a").unlink()
    seen.add(fingerprint([tmp_path]))
    assert len(seen) == 4


def test_a_file_of_the_same_size_and_time_that_took_its_place_shows(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    before = fingerprint([tmp_path / "a"])
    (tmp_path / "b").write_text("two")
    for name in "ab":
        os.utime(tmp_path / name, (1, 1))
    first = fingerprint([tmp_path / "a"])
    (tmp_path / "b").replace(tmp_path / "a")
    assert len({before, first, fingerprint([tmp_path / "a"])}) == 3


def test_a_mounted_config_map_changes_by_a_link(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "policy.yaml").write_text(version)
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "..data").symlink_to(tmp_path / "v1")
    (mount / "policy.yaml").symlink_to("..data/policy.yaml")
    before = fingerprint([mount])
    (mount / "..new").symlink_to(tmp_path / "v2")
    (mount / "..new").replace(mount / "..data")
    assert fingerprint([mount]) != before


def test_a_link_to_nowhere_shows_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    empty = fingerprint([tmp_path])
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    assert fingerprint([tmp_path]) != empty


@pytest.mark.usefixtures("files_are_checked_often")
async def test_each_change_is_acted_on_also_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a"
    noticed: asyncio.Queue[str] = asyncio.Queue()

    async def act() -> None:
        noticed.put_nowait(file.read_text())
        raise ValueError("cannot take it up")

    watch = asyncio.create_task(on_change([file], act))
    await asyncio.sleep(0)
    for text in ("one", "and two"):
        file.write_text(text)
        assert await noticed.get() == text
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert "cannot take it up" in caplog.text


def test_large_objects_take_turns_whoever_brings_them() -> None:
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(20_000):
            pass  # long enough for the interpreter to switch threads
        inside -= 1

    with ThreadPoolExecutor(8) as one, ThreadPoolExecutor(8) as other:
        for _ in range(100):
            one.submit(one_at_a_time, work)
            other.submit(one_at_a_time, work)
    assert most == 1


def test_a_large_object_that_fails_gives_up_its_turn() -> None:
    def fail() -> None:
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        one_at_a_time(fail)
    assert one_at_a_time(lambda: 1) == 1
