"""Where our ValidatingWebhookConfiguration says in which namespaces quota is asked about."""

from __future__ import annotations

QUOTA_WEBHOOK = "quota.stowplan.dev"
"""The webhook that is asked about pods; the list is a requirement of its namespaceSelector."""

ROLLOUT_WEBHOOK = "rollout.stowplan.dev"
"""The webhook that is asked about new quotas, so that their namespaces are listed first."""

PROBE_WEBHOOK = "rollout-probe.stowplan.dev"
"""The webhook that tells which version of the configuration an API server has."""

STAMP_LABEL = "stowplan.dev/rollout-stamp"
"""Label in the objectSelector of the probe's webhook: the generation that the list came with."""

NARROWING_ANNOTATION = "stowplan.dev/quota-rollout"
"""Annotation: the announcement that there will be fewer namespaces."""

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Label of every Namespace, set by the API server: its name."""

LIST_MARK = "stowplan.dev"
"""In our list, which may have no other value: no namespace can have this name, for it has a dot."""
