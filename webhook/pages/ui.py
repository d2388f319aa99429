"""What a report says, whatever shows it: a document is a sequence of blocks.

A page shows all blocks. A terminal shows paragraphs, lists and tables, and of folds those that
say so: facts and plots only show larger what these say, and forms are for readers who can click.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from engine.model.rule_outcomes import RuleInput, unit_of
from engine.report import NodeNames, PodName

_WHOLE: Final = 100


class Style(StrEnum):
    """How a text stands out."""

    STRONG = "strong"
    QUIET = "quiet"
    GOOD = "good"
    DOUBT = "doubt"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Span:
    """A text with a style, or with a link of a browser."""

    text: str
    style: Style | None = None
    href: str = ""  # beside the URL of the page
    title: str = ""  # all of a text that is cut short
    spoken: str = ""  # what a sign is read out as


@dataclass(frozen=True, slots=True)
class Level:
    """A part of a whole, as a bar in a browser."""

    amount: str
    percent: float | None  # None where it is unknown
    end: float  # where the bar is full, in percent
    threshold: int | None  # in percent; None for none

    @property
    def text(self) -> str:
        """Both in words."""
        return "unknown" if self.percent is None else f"{self.amount}, {self.percent} %"


Inline: TypeAlias = "str | Span | Level | Sequence[Inline]"
"""What stands in a line; `\\n` breaks it."""


def strong(text: object) -> Span:
    """Return a text that stands out."""
    return Span(str(text), Style.STRONG)


def quiet(text: object) -> Span:
    """Return a text of less importance."""
    return Span(str(text), Style.QUIET)


def bad(text: object) -> Span:
    """Return a text that says what is wrong."""
    return Span(str(text), Style.BAD)


ARROW: Final = Span("→", spoken="to")


def joined(parts: Iterable[Inline], separator: str = ", ") -> Inline:
    """Return parts with a separator between them."""
    found: list[Inline] = []
    for part in parts:
        found += (separator, part) if found else (part,)
    return found


def node_link(name: str, names: NodeNames) -> Inline:
    """Return a node by its short name; nothing for no name."""
    return Span(names.short(name), href=f"node?name={quote(name, '')}", title=name) if name else ""


def pod_link(pod: PodName) -> Span:
    """Return a pod by `namespace/name`."""
    query = urlencode({"namespace": pod.namespace, "name": pod.name}, quote_via=quote)
    return Span(str(pod), href=f"pod?{query}")


def policy_link(name: str) -> Span:
    """Return a policy by its name."""
    return Span(name, href=f"policy?name={quote(name, '')}")


Figure: TypeAlias = Mapping[str, Any]
"""`data` and `layout` as plotly.js reads them; every text of a cluster in it is `plot_text`."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Some sentences, or what its role says."""

    text: Inline
    role: str = ""  # `heading`, `command`, `answer`, `problem`, `quiet`, `parts`; "" for none


@dataclass(frozen=True, slots=True)
class Listing:
    """A list."""

    items: Sequence[Inline]


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures that are read first, each under its name."""

    items: Sequence[tuple[str, Inline]]


class Kind(StrEnum):
    """What a column holds."""

    TEXT = ""
    NAME = "name"  # not to be broken
    NUMBER = "number"
    FIGURE = "figure"  # to be compared along a row
    PROSE = "prose"  # sentences; a narrow terminal has them below the table
    DETAIL = "detail"  # likewise below it, with its title


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: Inline
    kind: Kind = Kind.TEXT
    sorted: str = ""  # `ascending` or `descending`; "" for neither


def number(title: Inline) -> Column:
    """Return a column of numbers."""
    return Column(title, Kind.NUMBER)


def name_column(title: Inline) -> Column:
    """Return a column of names."""
    return Column(title, Kind.NAME)


Row: TypeAlias = "Sequence[Inline | None]"
"""The cells of a row; None for what the row above says already. There may be fewer than columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        title: above it.
        columns: of it.
        rows: of it; the first cell names each.
        note: how to read it.
        empty: what stands in place of rows; without it there is no table without rows.
        most: how many rows a terminal has; None for all.
    """

    title: Inline = ""
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""
    empty: Inline = ""
    most: int | None = None

    def height(self, row: int, column: int) -> int:
        """Return how many rows a cell stands for."""
        below = row + 1
        while below < len(self.rows) and None in self.rows[below][column : column + 1]:
            below += 1
        return below - row


def columns(*titles: str) -> tuple[Column, ...]:
    """Return columns of texts."""
    return tuple(map(Column, titles))


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot; what it shows is also in a table."""

    id: str
    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Beside:
    """Blocks side by side, where there is room."""

    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that a browser shows when they are asked for."""

    title: str
    blocks: Sequence[Block]
    in_terminal: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form."""

    name: str
    value: str
    label: str = ""  # "" for one that is kept, and not shown
    placeholder: str = ""
    options: Sequence[str] = ()  # to choose from
    suggested: Sequence[str] = ()  # of which a browser shows 1,000


@dataclass(frozen=True, slots=True)
class Form:
    """What a reader may choose."""

    fields: Sequence[Field]
    button: str = "Show"


Block: TypeAlias = Paragraph | Listing | Facts | Table | Plot | Beside | Fold | Form


def is_shown(block: Block) -> bool:
    """Return whether there is anything in a block."""
    match block:
        case Table():
            return bool(block.rows or block.empty)
        case Beside() | Fold():
            return any(map(is_shown, block.blocks))
        case Facts() | Listing():
            return bool(block.items)
        case Paragraph():
            return bool(block.text)
    return True


def plots_in(blocks: Iterable[Block]) -> Iterable[Plot]:
    """Yield the plots of a document."""
    for block in blocks:
        if isinstance(block, Plot):
            yield block
        elif isinstance(block, Beside | Fold):
            yield from plots_in(block.blocks)


def amount(value: int | None, resource: str, whole: int | None = None) -> str:
    """Return an amount in base units as people write it: `1.5 GiB`, `5.8 of 8 cores`."""
    if value is None:
        return "unknown"
    return RuleInput("", value, unit_of(resource), capacity=whole).describe()


def percent(part: int | None, whole: int | None) -> float | None:
    """Return a part in percent of a whole, to a tenth; None where either is unknown or nothing."""
    if part is None or not whole:
        return None
    return round(_WHOLE * part / whole, 1)


def points(value: float | None, *, signed: bool = False) -> str:
    """Return points of scores to a tenth; with their sign where they are a difference."""
    if value is None:
        return "unknown"
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def moment_text(iso: str) -> str:
    """Return a moment in ISO 8601 of UTC as people read it: `2026-03-02 10:00:00 UTC`."""
    moment, offset, _ = iso.partition("+00:00")
    return f"{moment.replace('T', ' ')} UTC" if offset else iso
