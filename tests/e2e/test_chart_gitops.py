"""What docs/gitops.md says of Argo CD and Flux: fields that change themselves, and hooks."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.chart import CHART, of_kind, rendered
from tests.e2e.cluster import Json
from tests.fake_api_server import fake_api_server
from webhook.certificates.bundles import CaBundles
from webhook.cluster.client.connection import connected
from webhook.controllers.creation_reviews import CreationReviewController
from webhook.controllers.quota_rollout import RolloutConfiguration
from webhook.controllers.quota_rollout.configuration import Narrowing, Selection

PAGE = (Path(__file__).parents[2] / "docs" / "gitops.md").read_text(encoding="utf-8")
APPLICATION, HELM_RELEASE = (
    yaml.safe_load(block)["spec"]
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
)
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
VALUES = {"image.repository": "x/y", "binding.enabled": True, "quota.rollout": "Automatic"}

Field = tuple[str, str, str]
"""The kind of a configuration, the name of a webhook in it (or ""), and a path below that."""


def _differences(before: object, after: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the paths at which two objects differ, with what was there before."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}")
    elif before != after:
        yield path, before


@pytest.fixture
async def changed(tmp_path: Path) -> dict[Field, object]:
    """What all that writes to the chart's configurations changes there, with what is rendered."""
    manifests = [of_kind(rendered(values=VALUES), kind) for kind in (MUTATING, VALIDATING)]
    seconds = iter((0.0, 60.0))
    async with fake_api_server() as server, connected(server.kubeconfig(tmp_path), None) as api:
        for one in copy.deepcopy(manifests):
            server.create(one)
        bundles = CaBundles(api, mutating=["stowplan"], validating=["stowplan"])
        await bundles.distribute(b"authorities", may_write=lambda: True)
        creation = CreationReviewController(
            api,
            "stowplan",
            is_needed=lambda: False,
            may_write=lambda: True,
            now=lambda: next(seconds),
        )
        await creation.round()
        await creation.round()
        rollout = RolloutConfiguration(api, "stowplan")
        stored = await rollout.read()
        assert stored is not None
        narrowed = Selection(names=frozenset({"shop"}), narrowing=Narrowing(id="1"))
        await rollout.write(stored, narrowed)
        found: dict[Field, object] = {}
        for one in manifests:
            (now,) = server.objects(f"{one['kind'].lower()}s").values()
            for path, before in _differences(
                one["metadata"]["annotations"], now["metadata"]["annotations"]
            ):
                found[one["kind"], "", path] = before
            for old, new in zip(one["webhooks"], now["webhooks"], strict=True):
                for path, before in _differences(old, new):
                    found[one["kind"], old["name"], path] = before
        return found


def _ignored_by_argo_cd() -> set[Field]:
    expression = re.compile(r'\.webhooks\[\] \| select\(\.name == "(.*)"\) \| (\.[.\w]+)')
    return {
        (rule["kind"], *found.groups())
        for rule in APPLICATION["ignoreDifferences"]
        for text in rule["jqPathExpressions"]
        if (found := expression.fullmatch(text))
    }


def _ignored_by_flux(values: dict[str, object]) -> set[Field]:
    manifests = rendered(values=values)
    found = set()
    for rule in HELM_RELEASE["driftDetection"]["ignore"]:
        kind = rule["target"]["kind"]
        for pointer in rule["paths"]:
            _, webhooks, index, *path = pointer.split("/")
            name = of_kind(manifests, kind)[webhooks][int(index)]["name"]
            found.add((kind, name, "." + ".".join(path)))
    return found


async def test_what_is_changed_is_what_the_page_says(changed: dict[Field, object]) -> None:
    assert {field for field in changed if field[2] != ".clientConfig.caBundle"} == {
        (MUTATING, "placement.stowplan.dev", ".matchConditions"),
        (VALIDATING, "", ".stowplan.dev/quota-rollout"),
        (VALIDATING, "quota.stowplan.dev", ".namespaceSelector.matchExpressions"),
        (
            VALIDATING,
            "rollout-probe.stowplan.dev",
            ".objectSelector.matchLabels.stowplan.dev/rollout-stamp",
        ),
    }
    for kind, name, path in changed:
        field = path.removeprefix(".").removesuffix(".matchLabels.stowplan.dev/rollout-stamp")
        rows = [row for row in PAGE.splitlines() if row.startswith("| ") and f"`{field}`" in row]
        assert rows, (kind, name, field)
        assert path == ".clientConfig.caBundle" or f"`{name}`" in rows[0] or not name


async def test_what_the_chart_renders_of_it_is_ignored_and_nothing_else(
    changed: dict[Field, object],
) -> None:
    rendered_fields = {field for field, before in changed.items() if before is not None}
    ignored = _ignored_by_argo_cd()
    for kind, name, path in rendered_fields:
        assert any(path.startswith(each) for *of, each in ignored if of == [kind, name])
    assert len(ignored) == len(rendered_fields) == 2
    assert _ignored_by_flux(VALUES) == ignored


@pytest.mark.parametrize("values", ["default", "existing-policies", "held-pods", "switched-off"])
def test_with_the_values_of_the_page_there_are_no_hooks(values: str) -> None:
    helm = APPLICATION["source"]["helm"]
    given = {
        f"{key}.{name}": value
        for key, part in helm["valuesObject"].items()
        for name, value in part.items()
    }
    hooks = {
        one["metadata"]["annotations"]["helm.sh/hook"]
        for one in rendered(CHART / "ci" / f"{values}-values.yaml", values=given)
        if "helm.sh/hook" in one["metadata"].get("annotations", {})
    }
    assert hooks <= {"test"}  # which `skipTests` leaves out
    assert helm["skipTests"] is True


def test_what_is_rendered_is_the_same_each_time() -> None:
    first: list[Json] = rendered(values=VALUES)
    assert rendered(values=VALUES) == first
