"""`stowplan serve`: the webhook itself."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from engine.errors import StowplanError
from webhook.cli.exit_codes import Exit
from webhook.cluster.client.credentials import NoKubeconfigError
from webhook.serving import process as service
from webhook.settings import Settings, ShownEnvironment

app = App(name="serve", config=ShownEnvironment())


@app.default
def serve(*, settings: Annotated[Settings | None, Parameter(name="*")] = None) -> int:
    """Answer admission reviews over TLS until SIGINT or SIGTERM.

    Each setting is taken from its flag, else from its environment variable, else from the file
    named by `--config`, else from its default.
    """
    try:
        service.serve(settings or Settings())
    except NoKubeconfigError as error:
        raise StowplanError(f"{error}, or a recorded cluster with `--cluster`") from error
    return Exit.OK
