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


def test_sentences_of_a_table_that_is_too_wide_stand_below_it() -> None:
    columns = (
        ui.name_column("pod"),
        ui.Column("needs", ui.Kind.DETAIL),
        ui.Column("why", ui.Kind.PROSE),
    )
    short = ui.Table(columns=columns, rows=[("web", "cpu 2", "full")])
    assert shown(short)[2:] == ["web   cpu 2   full"]
    name, text = "web" * 20, "it is full " * 3
    rows = [(name, "cpu 2", text), (name, "cpu 2", text), ("idle", "", "")]
    lines = shown(ui.Table(columns=columns, rows=rows, note="note"))
    assert lines[2:6] == [name, name, "idle", ""]
    assert (
        " ".join(each.strip() for each in lines[6:-1]) == f"- {name}: needs cpu 2; {text}".strip()
    )
    assert lines[-1] == "note"


def test_titles_that_are_too_wide_are_numbered_below_the_table() -> None:
    names = [f"NodeResourcesBalanced{number} x 1" for number in range(4)]
    columns = (ui.name_column("node"), *map(ui.number, names))
    lines = shown(ui.Table(columns=columns, rows=[("a", "1", "2", "3", "4")], note="note"))
    assert lines[0].split() == ["node", "(1)", "(2)", "(3)", "(4)"]
    legend = [f"({number}) {name}" for number, name in enumerate(names, 1)]
    assert lines[3:] == ["", *legend, "note"]


def test_a_fold_that_a_terminal_shows_has_its_title_above() -> None:
    fold = ui.Fold("more", [table(("x", "y"))], in_terminal=True)
    assert shown(ui.Paragraph("one"), fold)[:3] == ["one", "", "more"]
    assert shown(fold)[1] == "a   b"


def test_an_item_of_a_list_hangs_below_its_sign() -> None:
    assert shown(ui.Listing(["word " * 17])) == ["-" + " word" * 15, "  word word"]


def test_what_needs_a_browser_is_left_out() -> None:
    plot = ui.Plot("p", "caption", {})
    facts, form = ui.Facts([("name", "1")]), ui.Form([ui.Field("a", "")])
    assert shown(plot, facts, form, ui.Fold("more", [table(("x", "y"))])) == []


def test_text_of_others_is_neither_markup_nor_a_control_character() -> None:
    assert shown(ui.Paragraph("[red]\x1b[2J")) == ["[red]\\u001b[2J"]
