"""The command line: `stowplan`, and `python -m stowplan`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line with the arguments of the process.

    Raises:
        SystemExit: always.
    """
    for name, part in (("engine", "errors"), ("webhook", "cli")):
        if find_spec(f"{name}.{part}") is None:
            hiding = Path(import_module(name).__path__[0])
            sys.exit(
                f"{hiding}: hides the package `{name}` of stowplan\nhint: run it in another folder,"
                f" without {hiding.parent} in PYTHONPATH"
            )
    from webhook.cli import main as run  # noqa: PLC0415 - only now it is known to be ours

    run()


if __name__ == "__main__":
    main()
