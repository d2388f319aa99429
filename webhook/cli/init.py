"""`stowplan init`: a folder with a policy, its cases and what an editor needs."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Final

from rich.markup import escape

from webhook.cli import console
from webhook.cli.exit_codes import Exit
from webhook.cli.output_files import write_new
from webhook.cli.shipped_files import SCHEMA

_TEMPLATES: Final = ("policy.yaml", "cases.yaml", "README.md")
_HIDDEN_SCHEMA: Final = f".{SCHEMA.name}"
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def init(folder: Path = Path(), /, *, from_cluster: list[Path] | None = None) -> int:
    """Write a policy to start from, with cases that pass.

    Nothing is overwritten. The policy has the name of the folder.

    Args:
        folder: where to; it is made if need be.
        from_cluster: a recorded cluster, as `stowplan snapshot` writes it: write the policies that
            it gives reason for instead, each with that reason and with its effect as it is
            simulated there.
    """
    if from_cluster:
        from webhook.cli.proposed import write_proposals  # noqa: PLC0415 - it takes a simulation

        return write_proposals(folder, from_cluster)
    template = files("webhook.cli").joinpath("new_policy")
    name = _NO_NAME.sub("-", folder.resolve().name.lower()).strip("-") or "my-policy"
    texts = {
        file: template.joinpath(file).read_text("utf-8").replace("NAME", name)
        for file in _TEMPLATES
    }
    texts[_HIDDEN_SCHEMA] = SCHEMA.read_text("utf-8")
    write_new(folder, texts)
    output = console.output()
    for file in texts:
        output.print(f"wrote {escape(str(folder / file))}")
    output.print(f"next: stowplan test {escape(quote(str(folder)))} --watch")
    return Exit.OK
