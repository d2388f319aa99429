"""Kinds of values that several settings have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, IPvAnyAddress

from webhook.settings.sources import split_at

Paths = Annotated[tuple[Path, ...], BeforeValidator(split_at(os.pathsep))]
Names = Annotated[tuple[str, ...], BeforeValidator(split_at(","))]
Addresses = Annotated[tuple[IPvAnyAddress, ...], BeforeValidator(split_at(","))]
Port = Annotated[int, Field(ge=0, le=65_535)]
