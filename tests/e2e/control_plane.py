"""A Kubernetes control plane on this machine: etcd, API server, scheduler, controllers.

Everything listens on loopback, on ports of its own, with certificates of its own, and keeps its
data in one folder. What a cluster needs beyond that is played by others: nodes and their kubelets
by `nodes.py`, the metrics server by `metrics_server.py`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.build import Executables
from tests.e2e.certificates import Authority, KeyPair, signing_key
from tests.e2e.part import Part
from tests.e2e.ports import free_ports

_LOCAL = "127.0.0.1"
_ASK_SECONDS = 10
_SERVICE_ADDRESSES = "10.0.0.0/24"
_FRONT_PROXY = "front-proxy-client"
_ADMISSION_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


class ControlPlane:
    """The four processes, and what it takes to talk to them.

    Args:
        programs: what `build.executables` returns.
        folder: an empty one, for data, certificates and logs.

    Attributes:
        etcd: the store.
        api_server: reachable at `url`.
        scheduler: the stock one, with its default profile.
        controllers: all that run by default; none evicts, as nodes never fail by themselves.
        url: of the API server.
        scheduler_url: of the scheduler's metrics.
        authority: issues every certificate of the cluster.
    """

    def __init__(self, programs: Executables, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self.authority = Authority(folder)
        self._serving = self.authority.issue(
            "kube-apiserver", hosts=[_LOCAL, "localhost", "kubernetes.default.svc"]
        )
        self.admin = self.authority.issue("admin", groups=["system:masters"])
        self._tokens = signing_key(folder)
        self._webhook_clients = folder / "webhook-clients.kubeconfig"
        self._write_webhook_clients({})
        etcd, peers, api, scheduler, controllers = free_ports(5)
        self._etcd_url = f"http://{_LOCAL}:{etcd}"
        self.url = f"https://{_LOCAL}:{api}"
        self.etcd = self._part(
            "etcd", self._etcd_flags(f"http://{_LOCAL}:{peers}"), f"{self._etcd_url}/health"
        )
        self._api_flags = self._api_server_flags(api)
        self.api_server = self._api_server({})
        self.scheduler_url = f"https://{_LOCAL}:{scheduler}"
        self._scheduler_flags = self._client_flags("system:kube-scheduler", scheduler)
        self.scheduler = self._scheduler({})
        self.controllers = self._part(
            "kube-controller-manager",
            self._controllers_flags(controllers),
            f"https://{_LOCAL}:{controllers}/healthz",
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """All processes, in the order they start."""
        return (self.etcd, self.api_server, self.scheduler, self.controllers)

    def start(self) -> None:
        """Start whatever is not running, and wait until all is ready."""
        self.etcd.start()
        self.api_server.start()
        clients = (self.scheduler, self.controllers)
        for part in clients:
            if not part.running:
                part.launch()  # the two get ready at the same time
        for part in clients:
            part.start()

    def stop(self) -> None:
        """End everything; nothing is worth saving."""
        for part in reversed(self.parts):
            part.kill()

    def client_context(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        """Return TLS settings that trust the cluster, and show a certificate (the admin's)."""
        pair = pair or self.admin
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] = ("system:masters",)) -> Path:
        """Return a new kubeconfig file of a user, who may be a service account.

        The name `system:serviceaccount:<namespace>:<name>` and the groups
        `system:serviceaccounts`, `system:serviceaccounts:<namespace>` make one.
        """
        pair = self.authority.issue(user, groups=groups)
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        client = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        path = pair.certificate.with_suffix(".kubeconfig")
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        }
        path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        return path

    @contextmanager
    def showing_certificates(self, shown: Mapping[str, KeyPair]) -> Iterator[None]:
        """Have the API server show client certificates to webhooks until the block is left.

        It reads which ones only when it starts, so it is started anew, before and after.

        Args:
            shown: by the host and port of a webhook.
        """
        self._write_webhook_clients(shown)
        self.api_server.restart()
        try:
            yield
        finally:
            self._write_webhook_clients({})
            self.api_server.restart()

    @asynccontextmanager
    async def another_api_server(self) -> AsyncIterator[tuple[Part, str]]:
        """Run a second API server on the same store until the block is left; yield its URL, too."""
        (port,) = free_ports(1)
        url = f"https://{_LOCAL}:{port}"
        part = self._part("kube-apiserver", self._api_server_flags(port), f"{url}/readyz")
        try:
            await asyncio.to_thread(part.start)
            yield part, url
        finally:
            await asyncio.to_thread(part.kill)

    @asynccontextmanager
    async def featuring(self, gate: str, api_version: str) -> AsyncIterator[None]:
        """Have the API server and the scheduler run with a feature until the block is left.

        Args:
            gate: of the feature.
            api_version: of the kinds that it brings, as `scheduling.k8s.io/v1beta1`.
        """
        gates = {"feature-gates": f"{gate}=true"}
        usual = self.api_server
        self.api_server = self._api_server({**gates, "runtime-config": f"{api_version}=true"})
        try:
            await asyncio.to_thread(usual.kill)
            await asyncio.to_thread(self.api_server.start)
            async with self.scheduling_with(gates):
                yield
        finally:
            await asyncio.to_thread(self.api_server.kill)
            self.api_server = usual
            await asyncio.to_thread(usual.start)

    @asynccontextmanager
    async def scheduling_with(self, flags: Mapping[str, str]) -> AsyncIterator[None]:
        """Have the scheduler run with more flags until the block is left."""
        usual, self.scheduler = self.scheduler, self._scheduler(flags)
        await asyncio.to_thread(usual.kill)
        try:
            await asyncio.to_thread(self.scheduler.start)
            yield
        finally:
            await asyncio.to_thread(self.scheduler.kill)
            self.scheduler = usual
            await asyncio.to_thread(usual.start)

    @asynccontextmanager
    async def scheduling_by(self, configuration: Mapping[str, object]) -> AsyncIterator[None]:
        """Have the scheduler run by a configuration until the block is left.

        Args:
            configuration: fields of a KubeSchedulerConfiguration, beside those of every one.
        """
        kubeconfig = str(self.kubeconfig("system:kube-scheduler", groups=()))
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "leaderElection": {"leaderElect": False},
            **configuration,
        }
        path = self._folder / "scheduler.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        async with self.scheduling_with({"config": str(path)}):
            yield

    def _api_server(self, flags: Mapping[str, str]) -> Part:
        return self._part("kube-apiserver", {**self._api_flags, **flags}, f"{self.url}/readyz")

    def _scheduler(self, flags: Mapping[str, str]) -> Part:
        health = f"{self.scheduler_url}/healthz"
        return self._part("kube-scheduler", {**self._scheduler_flags, **flags}, health)

    def _write_webhook_clients(self, shown: Mapping[str, KeyPair]) -> None:
        users = [
            {
                "name": host,
                "user": {"client-certificate": str(pair.certificate), "client-key": str(pair.key)},
            }
            for host, pair in shown.items()
        ]
        content = {"apiVersion": "v1", "kind": "Config", "users": users}
        self._webhook_clients.write_text(json.dumps(content), encoding="utf-8")

    def _admission_configuration(self) -> Path:
        """Return the file that names the kubeconfig with client certificates for webhooks."""
        plugin = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(self._webhook_clients),
        }
        content = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": name, "configuration": plugin} for name in _ADMISSION_PLUGINS],
        }
        path = self._folder / "admission.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def forget_history(self) -> None:
        """Make every resource version before now too old, as hours do in a busy cluster.

        etcd drops what was overwritten; the API server keeps recent events in memory, so it starts
        anew. A watch that goes on from an earlier version is answered 410.
        """
        now = self._etcd_call("/v3/kv/range", {"key": "AA==", "count_only": True})
        revision = now["header"]["revision"]
        self._etcd_call("/v3/kv/compaction", {"revision": revision, "physical": True})
        self.api_server.restart()

    def _etcd_call(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        data = json.dumps(body).encode()
        with urllib.request.urlopen(  # noqa: S310 (our own etcd)
            f"{self._etcd_url}{path}", data=data, timeout=_ASK_SECONDS
        ) as answer:
            return json.load(answer)

    def _part(self, name: str, flags: Mapping[str, str], health: str) -> Part:
        command = [
            str(self._programs.control_plane),
            name,
            *(f"--{flag}={value}" for flag, value in flags.items()),
        ]
        is_ready = _asking(health, self.client_context())
        return Part(name, command, self._folder / f"{name}.log", is_ready)

    def _etcd_flags(self, peers: str) -> dict[str, str]:
        return {
            "name": "e2e",
            "data-dir": str(self._folder / "etcd"),
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"e2e={peers}",
            "unsafe-no-fsync": "true",  # a test outlives no power cut
            "log-level": "warn",
        }

    def _api_server_flags(self, port: int) -> dict[str, str]:
        ca = str(self.authority.certificate)
        front_proxy = self.authority.issue(_FRONT_PROXY)
        return {
            **self._serving_flags(port),
            "etcd-servers": self._etcd_url,
            "advertise-address": _LOCAL,
            "endpoint-reconciler-type": "none",  # no endpoint may be a loopback address
            "service-cluster-ip-range": _SERVICE_ADDRESSES,
            "allow-privileged": "true",
            "authorization-mode": "RBAC",
            "admission-control-config-file": str(self._admission_configuration()),
            "client-ca-file": ca,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(self._tokens.certificate),
            "service-account-signing-key-file": str(self._tokens.key),
            # The aggregation layer, for metrics.k8s.io.
            "requestheader-client-ca-file": ca,
            "requestheader-allowed-names": _FRONT_PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": str(front_proxy.certificate),
            "proxy-client-key-file": str(front_proxy.key),
        }

    def _controllers_flags(self, port: int) -> dict[str, str]:
        return {
            **self._client_flags("system:kube-controller-manager", port),
            "use-service-account-credentials": "true",  # as in real clusters: reviews name them
            "service-account-private-key-file": str(self._tokens.key),
            "root-ca-file": str(self.authority.certificate),
            # A node is Ready until a test says otherwise: no heart beats here.
            "node-monitor-grace-period": "24h",
        }

    def _client_flags(self, user: str, port: int) -> dict[str, str]:
        """Return the flags of a part that is a client of the API server."""
        kubeconfig = str(self.kubeconfig(user, groups=()))
        return {
            **self._serving_flags(port),
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "leader-elect": "false",
        }

    def _serving_flags(self, port: int) -> dict[str, str]:
        return {
            "bind-address": _LOCAL,
            "secure-port": str(port),
            "tls-cert-file": str(self._serving.certificate),
            "tls-private-key-file": str(self._serving.key),
        }


@contextmanager
def running(programs: Executables, folder: Path) -> Iterator[ControlPlane]:
    """Yield a control plane that is ready, and end it afterwards."""
    control_plane = ControlPlane(programs, folder)
    try:
        control_plane.start()
        yield control_plane
    finally:
        control_plane.stop()


def _asking(url: str, context: ssl.SSLContext) -> Callable[[], bool]:
    """Return a function that asks a server whether it is well."""

    def is_well() -> bool:
        try:
            with urllib.request.urlopen(  # noqa: S310 (a part of ours)
                url, context=context, timeout=_ASK_SECONDS
            ):
                return True
        except OSError:  # an answer other than 2xx is one, too
            return False

    return is_well
