"""Templates: HTML by Jinja, which escapes every value that is put into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from engine.model.count_text import counted
from engine.model.quantity import base_units
from engine.model.time import SECOND, Micros
from engine.report import eta_text
from webhook.pages.amounts import amount, moment_text, percent, points

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, /, **values: object) -> str:
    """Return HTML of a template, such as `nodes.html`.

    Args:
        template: its file.
        values: what it shows; a text is escaped wherever it is put.
    """
    return _environment().get_template(template).render(**values)


def linked(choice: Mapping[str, str]) -> Callable[..., str]:
    """Return what makes a link to the same page with some of a choice changed."""

    def link(**change: object) -> str:
        kept = {**choice, **{key: str(value) for key, value in change.items()}}
        return f"?{urlencode({key: value for key, value in kept.items() if value})}"

    return link


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # Imported where pages are asked for: it takes some megabytes, and most replicas show none.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("webhook.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": amount,
        "counted": counted,
        "in_base_units": lambda quantity, name: base_units(name, quantity),
        "moment": moment_text,
        "percent": percent,
        "points": points,
        "wait": lambda seconds: eta_text(Micros(seconds * SECOND)),
    }
    return environment
