"""The version, here and in `pyproject.toml`.

To ask the installation for it takes as long as all else that a command imports first.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
