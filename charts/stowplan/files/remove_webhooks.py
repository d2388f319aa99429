"""Remove our webhook configurations, so that no pod waits for a webhook that is going away.

The script of the `pre-delete` hook. It runs in the pod of a Job, with the standard library alone.
"""
# ruff: noqa: INP001, T201 - a script: its output is the log of a pod

from __future__ import annotations

import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
SERVER = os.environ.get("SERVER", "https://kubernetes.default.svc")
API = f"{SERVER}/apis/admissionregistration.k8s.io/v1"
NOT_FOUND = 404
PATIENCE_SECONDS = 30
SETTLE_SECONDS = float(os.environ.get("SETTLE_SECONDS", "0"))


def remove(path: str, token: str, context: ssl.SSLContext) -> None:
    """Delete one object; it is no mistake if it is gone."""
    request = urllib.request.Request(  # noqa: S310 - the API server's own address
        f"{API}/{path}", method="DELETE", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=PATIENCE_SECONDS):  # noqa: S310 - as above
            print(f"removed {path}")
    except urllib.error.HTTPError as error:
        with error:
            if error.code != NOT_FOUND:
                sys.exit(f"{path} is not removed: {error.code} {error.read().decode()}")
        print(f"{path} is gone already")


def main() -> None:
    """Remove the configuration of either kind."""
    name = os.environ["CONFIGURATION"]
    token = (ACCOUNT / "token").read_text(encoding="utf-8").strip()
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        remove(f"{kind}/{name}", token, context)
    time.sleep(SETTLE_SECONDS)  # until every API server has noticed, and no pod is on its way


main()
