"""Tables on a terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table


def plain_table(*columns: str) -> Table:
    """Return a table without a frame that folds long values."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
