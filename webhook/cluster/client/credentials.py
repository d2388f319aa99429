"""Credentials for the API server, renewed as tokens rotate.

`kubernetes.aio` reads configurations, but keeps the newline at the end of a token file, which no
header may contain, and runs an exec plugin only once. This module does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import KUBE_CONFIG_DEFAULT_LOCATION, ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from engine.errors import Diagnostic, InvalidFileError, StowplanError, did_you_mean

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder with the service account of a pod; the kubelet renews its token."""

_DEFAULT_PLACE = "~/.kube/config"  # also where $KUBECONFIG is empty, as with kubectl
_TOKEN = "BearerToken"  # noqa: S105 - the key of a token, not a token
_RENEW_AHEAD = timedelta(minutes=1)
_RENEW_AT_MOST_EVERY = timedelta(seconds=10)
_UNUSABLE = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError)
"""Exceptions of the client for an invalid configuration."""


class NoKubeconfigError(StowplanError):
    """There is no kubeconfig at the place where one is expected."""


class Credentials(Protocol):
    """Configuration of a client, with credentials that are renewed."""

    async def configuration(self) -> Configuration:
        """Return a new configuration that renews its own token ahead of time."""

    async def renew(self, configuration: Configuration) -> bool:
        """Read rejected credentials again; return whether there are others."""


class ServiceAccount:
    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    async def configuration(self) -> Configuration:
        """Return a new configuration; its token is read for every request."""
        configuration = Configuration()
        in_cluster: Any = InClusterConfigLoader  # it has no types
        loader = in_cluster(
            token_filename=str(self._token_file),
            cert_filename=str(self._folder / "ca.crt"),
            try_refresh_token=False,
            environ=self._environ,
        )
        try:
            loader.load_and_set(configuration)
        except _UNUSABLE as error:
            raise _invalid(self._folder, error) from error
        self._read_token(configuration)
        _renew_with(configuration, self._read_token)
        return configuration

    async def renew(self, configuration: Configuration) -> bool:
        """Read the token again; return whether it has changed."""
        return self._read_token(configuration)

    @property
    def _token_file(self) -> Path:
        return self._folder / "token"

    def _read_token(self, configuration: Configuration) -> bool:
        try:
            token = f"Bearer {self._token_file.read_text().strip()}"
        except OSError:
            return False  # the last one may stay valid for a while
        changed = configuration.api_key.get(_TOKEN) != token
        configuration.api_key[_TOKEN] = token
        return changed


class Kubeconfig:
    """A user of a kubeconfig, with a token, a token file, a certificate or an exec plugin."""

    def __init__(
        self,
        path: Path | None,
        context: str | None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._paths = str(path or KUBE_CONFIG_DEFAULT_LOCATION or _DEFAULT_PLACE)
        self._context = context
        self._now = now
        self._renewed_at: datetime | None = None
        self._good_until: datetime | None = None

    async def configuration(self) -> Configuration:
        """Return a new configuration; a token that expires is renewed before."""
        if not _existing(self._paths):
            hint = "hint: name another with `--kubeconfig`"
            raise NoKubeconfigError(f"there is no kubeconfig `{self._paths}`\n{hint}")
        contexts = [name for path in _existing(self._paths) for name in _contexts(path)]
        if self._context is not None and self._context not in contexts:
            known = ", ".join(f"`{name}`" for name in contexts)
            problem = f"it has no context `{self._context}`"
            hint = did_you_mean(self._context, contexts) or (known and f"it has {known}")
            raise InvalidFileError([Diagnostic(file=self._paths, message=problem, hint=hint)])
        try:
            configuration = await self._load()
        except _UNUSABLE as error:
            raise _invalid(self._paths, error) from error
        _renew_with(configuration, self._renew_in_time)
        return configuration

    async def renew(self, configuration: Configuration) -> bool:
        """Read the file and run its plugin again; return whether that gave credentials."""
        now = self._now()
        if self._renewed_at is not None and now - self._renewed_at < _RENEW_AT_MOST_EVERY:
            return False
        self._renewed_at = now
        try:
            renewed = await self._load()
        except _UNUSABLE:
            return False  # the answer of the API server tells what is wrong
        if not renewed.api_key and not renewed.cert_file:
            return False  # the plugin failed, which the client only logs
        if _TOKEN in renewed.api_key:
            configuration.api_key[_TOKEN] = renewed.api_key[_TOKEN]
        for name in ("ssl_ca_cert", "cert_file", "key_file"):
            setattr(configuration, name, getattr(renewed, name))
        return True

    async def _renew_in_time(self, configuration: Configuration) -> None:
        if self._good_until is not None and self._now() >= self._good_until - _RENEW_AHEAD:
            await self.renew(configuration)

    async def _load(self) -> Configuration:
        configuration = Configuration()
        load: Any = load_kube_config  # it has no types
        loader = await load(
            config_file=self._paths,
            context=self._context,
            client_configuration=configuration,
            persist_config=False,
        )
        self._good_until = getattr(loader, "exec_plugin_expiry", None)
        token = configuration.api_key.get(_TOKEN)
        if token is not None:
            configuration.api_key[_TOKEN] = token.strip()
        return configuration


def credentials(
    kubeconfig: Path | None, context: str | None, environ: Mapping[str, str], service_account: Path
) -> Credentials:
    """Return the credentials asked for, by default the service account if we run in a pod."""
    in_a_pod = "KUBERNETES_SERVICE_HOST" in environ and service_account.is_dir()
    if kubeconfig is None and context is None and in_a_pod:
        return ServiceAccount(service_account, environ)
    return Kubeconfig(kubeconfig, context)


def _renew_with(configuration: Configuration, hook: Callable[[Configuration], object]) -> None:
    """Have a hook called before every request."""
    untyped: Any = configuration
    untyped.refresh_api_key_hook = hook


def _existing(paths: str) -> list[Path]:
    named = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    return [path for path in named if path.exists()]


def _contexts(path: Path) -> list[str]:
    """Return the names of the contexts in a kubeconfig; the client's errors would be unclear."""
    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        problem = "not a kubeconfig: not valid UTF-8"
        raise InvalidFileError([Diagnostic(file=str(path), message=problem)]) from error
    except (yaml.YAMLError, OSError) as error:
        raise _invalid(path, error) from error
    if not isinstance(config, dict):
        problem = "not a kubeconfig: expected a mapping of keys to values"
        raise InvalidFileError([Diagnostic(file=str(path), message=problem)])
    contexts = config.get("contexts")
    entries = contexts if isinstance(contexts, list) else []
    return [str(entry.get("name")) for entry in entries if isinstance(entry, dict)]


def _invalid(place: Path | str, error: Exception) -> InvalidFileError:
    problem = f"no connection can be made with it: {error}"
    return InvalidFileError([Diagnostic(file=str(place), message=problem)])
