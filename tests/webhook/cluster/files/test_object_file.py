from __future__ import annotations

import json
from pathlib import Path

import pytest

from webhook.cluster.files.object_file import object_file


def test_what_was_taken_back_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    with object_file(path) as file:
        begin = file.size
        file.add(b'{"kind":"Pod"}')
        file.truncate(begin)
        file.add(b'{"kind":"Node"}')
        kept = file.size
        file.add(b'{"kind":"Secret"}')
        file.truncate(kept)
        file.add(b'{"kind":"Namespace"}')
    assert [one["kind"] for one in json.loads(path.read_bytes())["items"]] == ["Node", "Namespace"]


def test_a_file_without_objects_is_a_list(tmp_path: Path) -> None:
    with object_file(tmp_path / "objects.json"):
        pass
    assert json.loads((tmp_path / "objects.json").read_bytes())["items"] == []


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text("old")
    with object_file(path) as file:
        file.add(b"{}")
        assert path.read_text() == "old"
    assert path.read_text() != "old"
    whole = path.read_bytes()

    def fail() -> None:
        with object_file(path) as file:
            file.add(b"{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]
