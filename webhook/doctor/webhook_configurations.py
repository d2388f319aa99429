"""The webhook configurations that checks read: whom the API server asks, and about what."""

from __future__ import annotations

from engine.model.creation_reviews import CREATION_CONDITION
from engine.model.quota_rollout import LIST_MARK, NAMESPACE_LABEL
from webhook.doctor.objects import Metadata, Part


class Service(Part, frozen=True):
    """The Service in front of a webhook."""

    name: str
    namespace: str


class ClientConfig(Part, frozen=True):
    """Address of a webhook, and the authorities that its callers trust."""

    url: str | None = None
    service: Service | None = None
    ca_bundle: bytes = b""  # base64 on the wire

    @property
    def host(self) -> str:
        """The name that the certificate must be valid for."""
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        authority = (self.url or "").partition("://")[2].partition("/")[0]
        return authority.rpartition(":")[0].strip("[]") or authority


class Rule(Part, frozen=True):
    """Requests that the API server sends to a webhook."""

    api_groups: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    @property
    def covers_pod_creation(self) -> bool:
        """Whether the creation of pods is among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"CREATE", "*"}.isdisjoint(self.operations)
            and not {"pods", "*", "*/*"}.isdisjoint(self.resources)
        )

    @property
    def covers_bindings(self) -> bool:
        """Whether the binding of pods is among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"CREATE", "*"}.isdisjoint(self.operations)
            and not {"pods/binding", "pods/*", "*/*"}.isdisjoint(self.resources)
        )

    @property
    def covers_pod_changes(self) -> bool:
        """Whether changes of pods are among them."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not {"UPDATE", "*"}.isdisjoint(self.operations)
            and not {"pods", "*", "*/*"}.isdisjoint(self.resources)
        )


class Requirement(Part, frozen=True):
    """A requirement of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NamespaceSelector(Part, frozen=True):
    """Selector of namespaces by their labels."""

    match_expressions: tuple[Requirement, ...] = ()

    def requires(self, key: str, value: str) -> bool:
        """Whether a label must have this value."""
        return Requirement(key, "In", (value,)) in self.match_expressions

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The namespaces that replicas have listed, None where they have not."""
        for each in self.match_expressions:
            if each.key == NAMESPACE_LABEL and LIST_MARK in each.values:
                return frozenset(each.values) - {LIST_MARK}
        return None


class MatchCondition(Part, frozen=True):
    """A condition that requests must meet."""

    name: str


class Webhook(Part, frozen=True):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()
    namespace_selector: NamespaceSelector = NamespaceSelector()
    rules: tuple[Rule, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = 10

    @property
    def covers_pod_creation(self) -> bool:
        """Whether it is called for some new pods."""
        return any(rule.covers_pod_creation for rule in self.rules)

    @property
    def covers_bindings(self) -> bool:
        """Whether it is called for some bindings of pods."""
        return any(rule.covers_bindings for rule in self.rules)

    @property
    def is_switched_off(self) -> bool:
        """Whether the leader has it called for nothing, as nothing would be answered."""
        return any(each.name == CREATION_CONDITION for each in self.match_conditions)

    def selects(self, namespace: str) -> bool:
        """Whether replicas have listed a namespace, or have listed none."""
        listed = self.namespace_selector.namespaces
        return listed is None or namespace in listed

    @property
    def covers_pod_changes(self) -> bool:
        """Whether it is called for some changes of pods."""
        return any(rule.covers_pod_changes for rule in self.rules)


class Configuration(Part, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata
    webhooks: tuple[Webhook, ...] = ()
