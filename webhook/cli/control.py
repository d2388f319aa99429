"""`stowplan control`: what is done once for a whole installation."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from engine.errors import Diagnostic
from webhook.cli.exit_codes import Exit
from webhook.cli.shipped_files import located_policies
from webhook.serving import process as service
from webhook.serving.services import Role
from webhook.settings import Settings, SettingsError, ShownEnvironment

app = App(name="control", config=ShownEnvironment())


@app.default
def control(*, settings: Annotated[Settings | None, Parameter(name="*")] = None) -> int:
    """Do what is done once for all replicas of `stowplan serve`, until SIGINT or SIGTERM.

    Several may run: one of them leads, by a Lease, and the others take over when it ends. The
    leader decides and releases held pods, evicts pods for others, counts where pods are bound,
    writes the status of quotas, PodGroups and policies, and renews the certificate. It
    answers no review of a pod that is created.

    Settings are those of `stowplan serve`, to be given alike, and are taken from flags, environment
    variables and the file named by `--config` in that order.
    """
    given = settings or Settings()
    if given.cluster:
        problem = "nothing is to be done on a recorded cluster: `stowplan serve` answers reviews"
        raise SettingsError([Diagnostic(file="--cluster", message=problem)])
    given = given.model_copy(update={"policies": located_policies(given.policies)})
    service.serve(given, Role.CONTROL)
    return Exit.OK
