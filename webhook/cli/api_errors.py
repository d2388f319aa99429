"""Failures of the API server in words, each with the hint that helps."""

from __future__ import annotations

from http import HTTPStatus

from webhook.cluster.client.connection import NO_CONTACT, ApiError

_PERMITTED = "`kubectl auth can-i --list` shows what is permitted"


def reason(error: ApiError, otherwise: str, *, forbidden: str = "", hint: str = "") -> str:
    """Return why the API server did not do what a command asked for, with a hint."""
    if error.status == NO_CONTACT:
        return (
            f"no contact with the API server: {error.message}\nhint: is it the right cluster, and"
            " in reach? `--kubeconfig` and `--context` name another"
        )
    if error.status == HTTPStatus.UNAUTHORIZED:
        return f"the API server does not accept our credentials: {error.message}"
    if error.status == HTTPStatus.FORBIDDEN:
        return f"{forbidden or otherwise}: {error.message}\nhint: {hint or _PERMITTED}"
    return f"{otherwise}: {error.message}"
