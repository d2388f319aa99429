from __future__ import annotations

from engine.plugins.lib.annotations import read_annotation
from tests.engine.measured_cluster import cluster, node


def test_each_distinct_text_is_read_once() -> None:
    texts = {"a": "1", "b": "2", "c": "1", "d": None}
    view = cluster(
        [node(name, {} if text is None else {"size": text}) for name, text in texts.items()]
    )
    read: list[str | None] = []

    def size(text: str | None) -> tuple[int, int]:
        read.append(text)
        return int(text or 0), len(text or "")

    assert read_annotation(view, "size", 2, size).tolist() == [[1, 2, 1, 0], [1, 1, 1, 0]]
    assert sorted(read, key=str) == ["1", "2", None]
