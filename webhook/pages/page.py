"""A page before its document: a title, HTML and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

Figure: TypeAlias = Mapping[str, Any]
"""`data` and `layout` as plotly.js reads them; every text of a cluster in it is `plot_text`."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page.

    Attributes:
        name: its URL below the dashboard, such as `nodes`; "" if it never changes.
        title: what it shows.
        body: HTML of its main part. Elements with a class `live` and an id are replaced by those of
            an update; others stay.
        figures: by the id of the element that each is drawn in.
    """

    name: str
    title: str
    body: str
    figures: Mapping[str, Figure] = {}
