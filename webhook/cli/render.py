"""Documents of reports as text, reports as JSON, and patches, on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich import box
from rich.console import Console, JustifyMethod
from rich.highlighter import JSONHighlighter
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from webhook.cli.console import output, visible
from webhook.pages import ui

_STYLES: Final = {
    ui.Style.STRONG: "bold",
    ui.Style.QUIET: "dim",
    ui.Style.GOOD: "bold green",
    ui.Style.DOUBT: "bold yellow",
    ui.Style.BAD: "bold red",
}
_BELOW: Final = (ui.Kind.PROSE, ui.Kind.DETAIL)
_ENDLESS: Final = 10_000  # columns
_ROLES: Final = {"heading": "bold", "quiet": "dim"}


def show(blocks: Iterable[ui.Block], console: Console | None = None) -> None:
    """Print a document, on standard output by default."""
    console, is_first, was_table, was_heading = console or output(), True, False, False
    for block in filter(ui.is_shown, _unfolded(blocks)):
        if not isinstance(block, ui.Paragraph | ui.Listing | ui.Table):
            continue
        is_table = isinstance(block, ui.Table)
        is_heading = isinstance(block, ui.Paragraph) and block.role == "heading"
        if not is_first and not was_heading and (was_table or is_table or is_heading):
            console.print()
        is_first, was_table, was_heading = False, is_table, is_heading
        match block:
            case ui.Paragraph():
                # No line break in what is to be copied, or aligned.
                wraps_softly = True if block.role == "command" else None
                text = _text(block.text, _ROLES.get(block.role, ""))
                console.print(text, soft_wrap=wraps_softly)
            case ui.Listing():
                _show_list(block.items, console)
            case ui.Table():
                _show_table(block, console)


def _unfolded(blocks: Iterable[ui.Block]) -> Iterator[ui.Block]:
    for block in blocks:
        if isinstance(block, ui.Fold) and block.in_terminal and ui.is_shown(block):
            yield ui.Paragraph(block.title, "heading")
            yield from _unfolded(block.blocks)
        else:
            yield block


def _show_table(table: ui.Table, console: Console) -> None:
    if table.title:
        console.print(_text(table.title))
    if not table.rows:
        console.print(_text(table.empty))
        return
    grid = _grid(table, [*range(len(table.columns))])
    wide = console.options.update(max_width=_ENDLESS)
    below: Sequence[int] = ()
    numbered: Sequence[int] = ()
    if Measurement.get(console, wide, grid).maximum > console.width:
        below = [i for i, column in enumerate(table.columns) if column.kind in _BELOW]
        shown = [i for i in range(len(table.columns)) if i not in below]
        grid = _grid(table, shown)
        if Measurement.get(console, wide, grid).minimum > console.width:
            numbered = [i for i in shown if table.columns[i].kind is ui.Kind.NUMBER]
            grid = _grid(table, shown, numbered)
    console.print(grid)
    if numbered:
        console.print()
        for number, i in enumerate(numbered, 1):
            console.print(_text((f"({number}) ", table.columns[i].title)))
    if details := _details(table, below):
        console.print()
        _show_list(details, console)
    if table.note:
        console.print(_text(table.note, "dim"))


def _grid(table: ui.Table, shown: Sequence[int], numbered: Sequence[int] = ()) -> Table:
    """Return some columns of a table; some of those have a number in place of their title."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i in shown:
        column = table.columns[i]
        justify: JustifyMethod = "right" if column.kind is ui.Kind.FIGURE else "left"
        is_name = column.kind is ui.Kind.NAME
        title = f"({numbered.index(i) + 1})" if i in numbered else column.title
        grid.add_column(_text(title), overflow="fold", justify=justify, no_wrap=is_name)
    for row in table.rows[: table.most]:
        grid.add_row(*(_text(row[i] or "" if i < len(row) else "") for i in shown))
    if table.most is not None and len(table.rows) > table.most:
        grid.add_row(f"... and {len(table.rows) - table.most} more", style="dim")
    return grid


def _details(table: ui.Table, below: Sequence[int]) -> Sequence[ui.Inline]:
    kinds = [column.kind for column in table.columns]
    at = kinds.index(ui.Kind.NAME) if ui.Kind.NAME in kinds else 0
    name: ui.Inline = ""
    found: dict[str, ui.Inline] = {}
    for row in table.rows[: table.most]:
        name = row[at] or name
        cells = [(i, cell) for i in below if i < len(row) and (cell := row[i])]
        told = [
            (table.columns[i].title, " ", cell) if kinds[i] is ui.Kind.DETAIL else cell
            for i, cell in cells
        ]
        if told:
            item = (name, ": ", ui.joined(told, "; "))
            found.setdefault(_text(item).plain, item)
    return [*found.values()]


def _show_list(items: Iterable[ui.Inline], console: Console) -> None:
    grid = Table.grid(padding=(0, 1))
    for item in items:
        grid.add_row("-", _text(item))
    console.print(grid)


def _text(content: ui.Inline, style: str = "") -> Text:
    """Return what stands in a line; nothing in it is markup."""
    match content:
        case str():
            return Text(visible(content), style)
        case ui.Span():
            return Text(visible(content.text), _STYLES[content.style] if content.style else style)
        case ui.Level():
            return Text(visible(content.text), style)
    return Text.assemble(*(_text(part, style) for part in content))


def show_json(report: object) -> None:
    output().print_json(msgspec.json.encode(report).decode())


def show_patch(console: Console, operations: Sequence[Mapping[str, Any]]) -> None:
    """Print a JSON patch, as it can be given to `kubectl patch --type=json`."""
    if not operations:
        console.print("no patch: the pod passes as it is")
        return
    text = JSONHighlighter()(_folded(operations, min(console.width, 100)))
    console.print(text, soft_wrap=True)  # no line break inside a string: it can be copied


def _folded(value: object, width: int, indent: int = 0) -> str:
    """Return JSON with every value that fits on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if indent + len(flat) <= width or not isinstance(value, dict | list | tuple) or not value:
        return flat
    inner, pad = indent + 2, " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_folded(item, width, inner)}" for key, item in value.items()]
        opening, closing = "{}"
    else:
        parts = [_folded(item, width, inner) for item in value]
        opening, closing = "[]"
    body = f",\n{pad}".join(parts)
    return f"{opening}\n{pad}{body}\n{' ' * indent}{closing}"
