from __future__ import annotations

from dataclasses import replace

from webhook.pages import figures, ui
from webhook.pages.document import page_of


def body(*blocks: ui.Block) -> str:
    """Return blocks as HTML, without the room between elements."""
    return "".join(page_of("", "", blocks).body.split("\n"))


def table(*rows: ui.Row) -> ui.Table:
    return ui.Table(title="all", columns=(ui.Column("a"), ui.number("b")), rows=rows)


def test_a_cell_that_is_said_already_is_one_cell_of_several_rows() -> None:
    found = body(table(("x", "1"), (None, "2"), ("y", "3")))
    assert '<th scope="rowgroup" rowspan="2">x</th><td class="number">1</td>' in found
    assert '<tr><td class="number">2</td></tr>' in found
    assert '<th scope="row">y</th>' in found


def test_a_row_with_fewer_cells_than_columns_ends_with_empty_ones() -> None:
    assert '<th scope="row">x</th><td class="number"></td>' in body(table(("x",)))


def test_a_table_without_rows_says_so_or_is_not_there() -> None:
    assert "<table" not in body(table())
    told = ui.Table(columns=(ui.Column("a"),), rows=(), empty="nothing")
    assert "<p>nothing</p>" in body(told)
    assert "<table" not in body(told)


def test_a_title_is_above_a_table_and_how_to_read_it_below() -> None:
    found = body(replace(table(("x", "1")), note="how"))
    assert found.index("<caption>all</caption>") < found.index('<p class="note">how</p>')


def test_several_things_in_a_plot_have_a_legend_of_what_they_look_like() -> None:
    rows = (figures.Bars("one", [1]), figures.Bars("<two>", [2]))
    found = body(ui.Plot("p", "caption", figures.stacked_rows(["row"], rows, x="")))
    assert "&lt;two&gt;</li>" in found
    assert found.count("<li><svg") == 2
    assert 'fill="#fff">/</text>' in found  # the pattern of the second
    assert "<li" not in body(ui.Plot("p", "", figures.stacked_rows(["row"], rows[:1], x="")))
    steps = figures.lines({"a": ([0], [1]), "b": ([0], [2])}, x="", y="")
    assert 'stroke-dasharray="7 3"' in body(ui.Plot("p", "", steps))


def test_a_fold_with_nothing_in_it_is_not_there() -> None:
    assert "<details" not in body(ui.Fold("more", [ui.Beside([]), table()]))
    assert "<details" in body(ui.Fold("more", [table(("x", "1"))]))


def test_the_plots_of_a_document_are_those_of_all_its_parts() -> None:
    plot = ui.Plot("p", "caption", {"data": [], "layout": {}})
    page = page_of("", "", [ui.Fold("more", [ui.Beside([plot])])])
    assert set(page.figures) == {"p"}
    assert 'id="p" class="plot"' in page.body


def test_a_level_above_its_threshold_is_said_and_shown_so() -> None:
    over = ui.Level("9 cores", 90.0, end=100, threshold=65)
    found = body(ui.Table(columns=(ui.Column("a"),), rows=[(over,)]))
    assert '<strong class="bad">90.0 %</strong><span class="unseen"> above the threshold' in found
    assert '<rect class="over" width="90.0"' in found
    assert 'x1="65.0"' in found


def test_what_a_sentence_has_in_backticks_is_code() -> None:
    found = body(ui.Paragraph(("no node `<b>`: ", ui.bad("`x`"), " or a lone `")))
    assert "no node <code>&lt;b&gt;</code>: <strong" in found
    assert ">`x`</strong> or a lone `</p>" in found


def test_an_expression_in_a_table_keeps_its_backticks() -> None:
    assert ">labels.`a-b`</th>" in body(table(("labels.`a-b`", "1")))


def test_a_sign_is_read_out_as_a_word() -> None:
    found = body(ui.Paragraph(("1 ", ui.ARROW, " 2")))
    assert '1 <span aria-hidden="true">→</span><span class="unseen">to</span> 2' in found
