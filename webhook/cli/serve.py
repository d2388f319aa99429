"""`stowplan serve`: the webhook itself."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from webhook import server
from webhook.cli.exit_codes import Exit
from webhook.settings import Settings


def serve(*, settings: Annotated[Settings | None, Parameter(name="*")] = None) -> int:
    """Answer admission reviews over TLS until told to end by SIGINT or SIGTERM.

    Each setting is taken from its flag, else from its environment variable, else from the file
    named by `--config`, else from its default.
    """
    server.serve(settings or Settings())
    return Exit.OK
