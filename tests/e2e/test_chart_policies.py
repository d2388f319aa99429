"""What the chart installs for policies of the API."""

from __future__ import annotations

import pytest

from tests.e2e.chart import of_kind, rendered
from tests.e2e.cluster import Json

_WEBHOOK = "policies.stowplan.dev"


def _installs(**values: object) -> set[str]:
    """Return what the chart installs for policies of the API."""
    manifests = rendered(values=values)
    found = set()
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "CustomResourceDefinition" and name.endswith(".stowplan.dev"):
            found.add("definitions")
        groups = {
            group for rule in manifest.get("rules", ()) for group in rule.get("apiGroups", ())
        }
        if "stowplan.dev" in groups:
            found.add("rights")
        webhooks = {webhook["name"] for webhook in manifest.get("webhooks", ())}
        found |= webhooks & {"policies.stowplan.dev"}
    container = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    return found | ({"watch"} if variables["STOWPLAN_POLICY_RESOURCES"] == "true" else set())


@pytest.mark.parametrize(
    ("values", "installed"),
    [
        ({}, {"definitions", "rights", _WEBHOOK, "watch"}),
        ({"crds.placementPolicy.install": "Never"}, {"rights", _WEBHOOK, "watch"}),
        ({"enabled": False}, {"definitions", "rights", "watch"}),
        ({"quota.mode": "Off"}, {"definitions", "rights", _WEBHOOK, "watch"}),
        ({"placement.mode": "Off"}, set()),
        ({"policies.resources.enabled": False}, set()),
    ],
)
def test_the_chart_installs_all_that_policies_of_the_api_need_or_nothing(
    values: Json, installed: set[str]
) -> None:
    assert _installs(**values) == installed


def test_whoever_edits_a_namespace_writes_its_policies_only_where_the_chart_is_told_so() -> None:
    for value, labels in ((False, set()), (True, {"aggregate-to-admin", "aggregate-to-edit"})):
        manifests = rendered(values={"policies.resources.aggregateToEdit": value})
        (editor,) = (
            each for each in manifests if each["metadata"]["name"] == "stowplan-policy-editor"
        )
        prefix = "rbac.authorization.k8s.io/"
        found = {label for label in editor["metadata"]["labels"] if label.startswith(prefix)}
        assert found == {f"{prefix}{label}" for label in labels}
