from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from webhook.cluster import load_recorded
from webhook.cluster.files.object_file import object_file, read_object_file

NODE = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-a"}}'
QUOTA = b'{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"ElasticQuota","metadata":{}}'


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


def written(path: Path, *objects: bytes) -> Path:
    with object_file(path) as file:
        for each in objects:
            file.add(each)
    return path


def test_what_was_written_is_read_object_by_object(tmp_path: Path) -> None:
    objects = list(read_object_file(written(tmp_path / "objects.json", NODE, QUOTA)) or ())
    assert [(found.group, found.kind, bytes(found.raw)) for found in objects] == [
        ("", "Node", NODE),
        ("scheduling.x-k8s.io", "ElasticQuota", QUOTA),
    ]
    assert [found.problem(("spec",), "it is wrong", "").message for found in objects] == [
        "items[0].spec: it is wrong",
        "items[1].spec: it is wrong",
    ]
    assert list(read_object_file(written(tmp_path / "none.json")) or ()) == []


HEAD = b'{"apiVersion":"v1","kind":"List","items":['


@pytest.mark.parametrize(
    "content",
    [
        HEAD + b"]}",
        HEAD + b"\n" + NODE,  # cut
        HEAD + b"\n" + NODE + b",\n]}\n",
        HEAD + b"\n" + NODE + b"\n" + NODE + b"\n]}\n",
        HEAD + b"\n" + NODE[:-1] + b',\n"spec":{}}\n]}\n',
        HEAD + b'\n{"kind":"Node","images":[{},\n{}]},\n' + NODE + b"\n]}\n",
        HEAD + b"\n" + NODE + b"\n]}\n" + NODE,
        b'{"apiVersion":"v1","items":[\n' + NODE + b'\n],"kind":"List"}',
        b"kind: Node\n",
        b"",
    ],
)
def test_a_file_of_another_form_is_left_to_others(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "objects.json"
    path.write_bytes(content)
    assert read_object_file(path) is None


def test_a_list_that_somebody_has_edited_is_read_all_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "objects.json", NODE, QUOTA)
    path.write_bytes(path.read_bytes().replace(b'"metadata":{"name"', b'\n"metadata":{"name"'))
    assert load_recorded([path]).loaded == {"Node": 1}


def test_a_recording_takes_the_memory_of_one_object_beside_the_cluster(tmp_path: Path) -> None:
    # 200 objects of 64 KiB that no rule reads: 12.5 MiB
    secret = b'{"apiVersion":"v1","kind":"Secret","data":"%b"}' % (b"x" * 2**16)
    path = written(tmp_path / "objects.json", NODE, *[secret] * 200)
    load_recorded([path])  # what is imported and cached by it does not count
    tracemalloc.start()
    try:
        recording = load_recorded([path])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recording.skipped == {"Secret": 200}
    assert most < 2**20
