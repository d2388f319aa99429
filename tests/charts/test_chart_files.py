"""The chart's own files agree with each other, with the webhook, and with what people are told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from engine.binding import BINDING_REASON_ANNOTATION, SCHEDULER_NODE_ANNOTATION
from engine.model.kinds import KINDS
from engine.model.well_known import CREATION_CONDITION, PLACEMENT_WEBHOOK
from engine.placement import ESTIMATED_USAGE_ANNOTATION, REASON_ANNOTATION
from engine.policy import load_policies
from tests.charts.generated import CHART, CHARTS_OWN, ROOT, files, schema
from tests.engine.policy.worlds import policy
from webhook.admission.handler import Outcome
from webhook.cli.app import app
from webhook.settings import Settings

ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
TEMPLATES = {
    path: path.read_text(encoding="utf-8")
    for folder in ("templates", "files/admission-policies")
    for path in sorted((CHART / folder).rglob("*"))
    if path.is_file()
}
TOLD = {
    "README.md": (ROOT / "README.md").read_text(encoding="utf-8"),
    "charts/stowplan/README.md": (CHART / "README.md").read_text(encoding="utf-8"),
    "docs/runbook.md": RUNBOOK,
    "NOTES.txt": (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8"),
}
AGAIN = "run `make chart`"


@pytest.mark.parametrize(
    ("path", "text"), files().items(), ids=lambda one: getattr(one, "name", "")
)
def test_what_is_made_from_another_file_agrees_with_it(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, AGAIN


def test_no_shipped_policy_outlives_its_original() -> None:
    assert set((CHART / "files" / "policies").iterdir()) <= set(files()), AGAIN


def test_every_shipped_policy_can_be_loaded() -> None:
    loaded = load_policies([CHART / "files" / "policies"]).policies
    assert len(loaded) == len(list(ROOT.glob("policies/*/policy.yaml")))


def test_bindings_may_carry_what_is_written_at_bindings() -> None:
    policy = (CHART / "files" / "admission-policies" / "bindings.yaml").read_text(encoding="utf-8")
    written = {
        BINDING_REASON_ANNOTATION,
        ESTIMATED_USAGE_ANNOTATION,
        REASON_ANNOTATION,
        SCHEDULER_NODE_ANNOTATION,
    }
    assert set(re.findall(r"'(stowplan\.dev/[a-z-]+)'", policy)) == written


def test_the_leader_may_write_the_condition_that_it_writes() -> None:
    policy = (CHART / "files" / "admission-policies" / "webhooks.yaml").read_text(encoding="utf-8")
    assert f"{{'name': '{CREATION_CONDITION}', 'expression': 'false'}}" in policy
    assert f"after.name == '{PLACEMENT_WEBHOOK}' && key == 'matchConditions'" in policy
    assert f"- name: {PLACEMENT_WEBHOOK}\n" in TEMPLATES[CHART / "templates" / "webhooks.yaml"]


def test_a_template_uses_only_values_there_are() -> None:
    for path, text in TEMPLATES.items():
        for key in re.findall(r"\.Values\.([A-Za-z.]+)", text):
            assert _has(key.rstrip(".")), f"{path.name}: .Values.{key}"


def test_every_value_is_used_by_some_template() -> None:
    text = "\n".join(TEMPLATES.values())
    for name, inner in schema()["properties"].items():
        assert name == "global" or f".Values.{name}" in text, name
        for key in inner.get("properties", {}):
            assert name == "settings" or re.search(rf"\.{key}\b", text), f"{name}.{key}"


@pytest.mark.parametrize(("file", "text"), TOLD.items(), ids=TOLD)
def test_people_are_told_of_values_there_are(file: str, text: str) -> None:
    for key in re.findall(r"--set(?:-json|-string)? ([A-Za-z.]+)=", text):
        assert _has(key), f"{file}: --set {key}"


@pytest.mark.parametrize("file", ["README.md", "charts/stowplan/README.md"])
def test_people_are_told_how_to_install_the_chart_that_is_here(file: str) -> None:
    for path in re.findall(r"helm (?:install|upgrade)[^\n`]* (charts/\S+)", TOLD[file]):
        assert (ROOT / path / "Chart.yaml").exists(), path


def _has(key: str) -> bool:
    """Whether the schema knows a value, or leaves open what is inside of one it knows."""
    inner = schema()
    for name in key.split("."):
        properties = inner.get("properties")
        if properties is None:
            return inner.get("additionalProperties") is not False
        if name not in properties:
            return False
        inner = properties[name]
    return True


def test_artifact_hub_is_told_what_it_asks_for() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    told = {
        key.removeprefix("artifacthub.io/"): yaml.safe_load(text)
        for key, text in chart["annotations"].items()
    }
    assert told["license"] == "Apache-2.0"
    assert all({"kind", "description"} <= set(change) for change in told["changes"])
    assert all({"name", "url"} <= set(link) for link in told["links"])
    crds = {each["name"]: (each["kind"], each["version"]) for each in told["crds"]}
    definitions = [yaml.safe_load(path.read_text("utf-8")) for path in CHART.glob("files/crds/*")]
    assert crds == {
        each["metadata"]["name"]: (
            each["spec"]["names"]["kind"],
            each["spec"]["versions"][0]["name"],
        )
        for each in definitions
    }
    for example in told["crdsExamples"]:
        assert policy(yaml.safe_dump(example["spec"])).filters
    assert chart["kubeVersion"]


# The webhook.


def test_the_chart_sets_settings_there_are_and_leaves_the_others_to_values() -> None:
    variables = set(re.findall(r"name: STOWPLAN_([A-Z_]+)", "\n".join(TEMPLATES.values())))
    set_here = {name.lower() for name in variables}
    assert set_here <= set(Settings.model_fields)
    assert set_here <= CHARTS_OWN
    assert set(Settings.model_fields) >= CHARTS_OWN


def test_containers_are_started_by_commands_there_are() -> None:
    helpers = TEMPLATES[CHART / "templates" / "_helpers.tpl"]
    started = set(re.findall(r'"args" \(list "(\w+)"', helpers))
    assert started >= {"serve", "control"}
    assert all(app[command] for command in started)


def test_the_account_may_read_the_kinds_in_the_table_and_no_other() -> None:
    text = TEMPLATES[CHART / "templates" / "rbac.yaml"]
    # What only some settings need.
    of_settings = r"^ *\{\{- if (?:eq|ne|or|\.Values\.(?:dashboard|debug|hold)).*?\{\{- end \}\}\n"
    text = re.sub(of_settings, "", text, flags=re.MULTILINE | re.DOTALL)
    role = next(iter(yaml.safe_load_all(re.sub(r"^.*\{\{.*\n", "", text, flags=re.MULTILINE))))
    granted = [
        (group, resource, tuple(rule["verbs"]))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    needed = [
        (kind.group, kind.plural, kind.verbs)
        for kind in KINDS
        if kind.verbs
        and not (kind.only_for_eviction or kind.only_for_policies or kind.only_offline)
    ]
    assert sorted(granted) == sorted(needed)


# Monitoring.


DECLARED = [
    name
    for folder in ("engine", "webhook")
    for path in sorted((ROOT / folder).rglob("*.py"))
    for name in sorted(set(re.findall(r'"(stowplan_[a-z_]+)"', path.read_text(encoding="utf-8"))))
]
METRICS = set(DECLARED)
NOT_SHOWN = {
    "stowplan_view_version",  # tells two views apart; panels show events of each source
    "stowplan_tasks",  # for endurance runs; in a cluster a leak shows in memory
}


def _shown() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def _expressions() -> list[str]:
    return _shown() + [alert["expr"] for alert in ALERTS]


def _metrics_in(expression: str) -> set[str]:
    names = re.findall(r"stowplan_[a-z_]+", expression)
    return {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in names}


def test_alerts_and_panels_ask_for_metrics_there_are() -> None:
    for expression in _expressions():
        assert _metrics_in(expression) <= METRICS, expression


def test_the_dashboard_shows_every_metric_there_is() -> None:
    shown = {name for expression in _shown() for name in _metrics_in(expression)}
    assert shown == METRICS - NOT_SHOWN


def test_a_metric_is_declared_in_one_file() -> None:
    assert sorted(DECLARED) == sorted(METRICS)


def test_alerts_and_panels_ask_for_outcomes_there_are() -> None:
    for expression in _expressions():
        if "stowplan_reviews_total" not in expression:
            continue
        for outcomes in re.findall(r'outcome=~?"([a-z_|]+)"', expression):
            assert set(outcomes.split("|")) <= {str(one) for one in Outcome}, outcomes


def test_an_alert_is_about_this_installation() -> None:
    for alert in ALERTS:
        for name in re.findall(r"(?:stowplan_[a-z_]+|\bup)\{([A-Z]*)", alert["expr"]):
            assert name == "SELECTOR", alert["alert"]


def test_every_alert_has_a_section_in_the_runbook_and_no_section_is_left_over() -> None:
    sections = set(re.findall(r"^## (Stowplan\w+)$", RUNBOOK, flags=re.MULTILINE))
    assert sections == {alert["alert"] for alert in ALERTS}


def test_what_happened_elsewhere_is_tested_as_the_runbook_says() -> None:
    table = RUNBOOK.partition("## What happened elsewhere")[2]
    assert re.findall(r"^\| (\d+) ", table, re.MULTILINE) == [str(n + 1) for n in range(10)]
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", table))
    assert named
    assert named <= there


def test_panels_do_not_cover_each_other() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
