from __future__ import annotations

from io import StringIO

from rich.console import Console

from webhook.cli.render import show
from webhook.pages import ui


def shown(*blocks: ui.Block) -> list[str]:
    """Return the lines of a document without the ends that are room alone."""
    out = StringIO()
    show(blocks, Console(file=out, width=80))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def table(*rows: ui.Row, most: int | None = None) -> ui.Table:
    return ui.Table(columns=ui.columns("a", "b"), rows=rows, most=most)


def test_a_table_stands_apart_from_what_is_around_it() -> None:
    lines = shown(ui.Paragraph("one"), ui.Paragraph("two"), table(("x", "y")), ui.Paragraph("end"))
    assert lines == ["one", "two", "", "a   b", "─" * 5, "x   y", "", "end"]


def test_what_is_said_already_is_not_said_again() -> None:
    assert shown(table(("x", "1"), (None, "2")))[2:] == ["x   1", "    2"]


def test_a_long_table_is_cut_and_says_by_how_much() -> None:
    rows = [("x", "1"), ("y", "2"), ("z", "3")]
    assert shown(table(*rows, most=1))[2:] == ["x                1", "... and 2 more"]


def test_what_needs_a_browser_is_left_out() -> None:
    plot = ui.Plot("p", "caption", {})
    facts, form = ui.Facts([("name", "1")]), ui.Form([ui.Field("a", "")])
    assert shown(plot, facts, form, ui.Fold("more", [table(("x", "y"))])) == []


def test_text_of_others_is_neither_markup_nor_a_control_character() -> None:
    assert shown(ui.Paragraph("[red]\x1b[2J")) == ["[red]\\u001b[2J"]
