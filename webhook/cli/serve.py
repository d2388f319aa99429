"""`stowplan serve` and `stowplan control`: the processes of an installation."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from engine.errors import Diagnostic, StowplanError
from webhook.cli.exit_codes import Exit
from webhook.cli.policy_loading import located_policies
from webhook.cluster.client.credentials import NoKubeconfigError
from webhook.serving import process as service
from webhook.serving.services import EMBEDDED, Role
from webhook.settings import ServeSettings, Settings, SettingsError, ShownEnvironment

serve_app = App(name="serve", config=ShownEnvironment())


@serve_app.default
def serve(*, settings: Annotated[ServeSettings | None, Parameter(name="*")] = None) -> int:
    """Answer admission reviews over TLS until SIGINT or SIGTERM."""
    try:
        given = settings or ServeSettings()
        located = {"policies": located_policies(given.policies)}
        given = given.model_copy(update=located)
        service.serve(given, EMBEDDED if given.control else Role.REVIEWS)
    except NoKubeconfigError as error:
        raise StowplanError(f"{error}, or a recorded cluster with `--cluster`") from error
    return Exit.OK


control_app = App(name="control", config=ShownEnvironment())


@control_app.default
def control(*, settings: Annotated[Settings | None, Parameter(name="*")] = None) -> int:
    """Do what is done once for all replicas of `stowplan serve`, until SIGINT or SIGTERM."""
    given = settings or Settings()
    if given.cluster:
        problem = "nothing is to be done on a recorded cluster: `stowplan serve` answers reviews"
        raise SettingsError([Diagnostic(file="--cluster", message=problem)])
    given = given.model_copy(update={"policies": located_policies(given.policies)})
    service.serve(given, Role.CONTROL)
    return Exit.OK
