"""`stowplan serve`: the webhook itself."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from engine.errors import StowplanError
from webhook.cli.exit_codes import Exit
from webhook.cli.shipped_files import located_policies
from webhook.cluster.client.credentials import NoKubeconfigError
from webhook.serving import process as service
from webhook.serving.services import EMBEDDED, Role
from webhook.settings import ServeSettings, ShownEnvironment

app = App(name="serve", config=ShownEnvironment())


@app.default
def serve(*, settings: Annotated[ServeSettings | None, Parameter(name="*")] = None) -> int:
    """Answer admission reviews over TLS until SIGINT or SIGTERM.

    What is done once for all replicas, `stowplan control` does, or one of them with `--control`.

    Each setting is taken from its flag, else from its environment variable, else from the file
    named by `--config`, else from its default.
    """
    try:
        given = settings or ServeSettings()
        located = {"policies": located_policies(given.policies)}
        given = given.model_copy(update=located)
        service.serve(given, EMBEDDED if given.control else Role.REVIEWS)
    except NoKubeconfigError as error:
        raise StowplanError(f"{error}, or a recorded cluster with `--cluster`") from error
    return Exit.OK
