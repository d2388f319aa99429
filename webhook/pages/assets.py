"""The files that pages load: plotly.js from its package, and our own script and styles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

PLOTS = "plotly.js"
SCRIPT = "pages.js"
STYLES = "pages.css"

_SCRIPT_TYPE = "text/javascript; charset=utf-8"
_DIGITS = 12  # of a digest in a name

_STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that never changes under its name.

    Attributes:
        name: with a digest of what it contains, so that browsers may keep it for ever.
        content_type: of HTTP.
    """

    name: str
    content_type: str
    body: bytes


@lru_cache(maxsize=1)
def asset_table() -> Mapping[str, Asset]:
    """Return the files by what they are: `PLOTS`, `SCRIPT`, `STYLES`; 5 MB, read once."""
    own = files("webhook.pages") / "static"
    plots = files("plotly") / "package_data" / "plotly.min.js"
    return {
        PLOTS: _asset(PLOTS, _SCRIPT_TYPE, plots.read_bytes()),
        SCRIPT: _asset(SCRIPT, _SCRIPT_TYPE, (own / SCRIPT).read_bytes()),
        STYLES: _asset(STYLES, "text/css; charset=utf-8", (own / STYLES).read_bytes()),
    }


def assets() -> Mapping[str, Asset]:
    """Return the files by their names in URLs."""
    return {asset.name: asset for asset in asset_table().values()}


@lru_cache(maxsize=1)
def style_ids() -> tuple[str, ...]:
    """Return the ids of style elements that plotly.js adds unless there are elements with them.

    They are for maps, which no page has; our Content-Security-Policy would refuse them.
    """
    return tuple(sorted(set(_STYLE_ID.findall(asset_table()[PLOTS].body.decode()))))


def _asset(name: str, content_type: str, body: bytes) -> Asset:
    stem, _, suffix = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
    return Asset(f"{stem}.{digest}.{suffix}", content_type, body)
