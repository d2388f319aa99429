"""Ask the API server for a pod, as a dry run, and see that it comes back with our advice.

The script of `helm test`: it takes the way of every pod, from the API server to the webhook and
back. It runs in a pod, with the standard library alone.
"""
# ruff: noqa: INP001, T201 - a script: its output is the log of a pod

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
SERVER = os.environ.get("SERVER", "https://kubernetes.default.svc")
PREFIX = "stowplan.dev/"
PATIENCE_SECONDS = 30
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "stowplan-test-"},
    "spec": {
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "never-started",
                "image": "stowplan.dev/never-pulled",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"cpu": "10m", "memory": "16Mi"},
                },
            }
        ],
    },
}


def main() -> None:
    """Create the pod, store nothing, and judge what comes back."""
    namespace = os.environ["TEST_NAMESPACE"]
    token = (ACCOUNT / "token").read_text(encoding="utf-8").strip()
    request = urllib.request.Request(  # noqa: S310 - the API server's own address
        f"{SERVER}/api/v1/namespaces/{namespace}/pods?dryRun=All",
        data=json.dumps(POD).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    try:
        with urllib.request.urlopen(request, context=context, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - as above
            warnings = answer.headers.get_all("Warning") or []
            annotations = json.load(answer)["metadata"].get("annotations", {})
    except urllib.error.HTTPError as error:
        with error:
            sys.exit(f"the pod is refused: {error.code} {error.read().decode()}")
    ours = {name: text for name, text in annotations.items() if name.startswith(PREFIX)}
    print(json.dumps({"advice": ours, "warnings": warnings}, indent=2))
    heard = ours or any("stowplan" in warning for warning in warnings)
    if os.environ["EXPECT_ADVICE"] == "true" and not heard:
        sys.exit(
            "the pod comes back without advice: is the webhook ready, does the API server reach it"
            f" and trust it, do the labels of namespace {namespace} let it be asked, does a policy"
            " speak of pods there?"
        )


main()
