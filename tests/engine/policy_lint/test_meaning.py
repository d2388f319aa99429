"""What lint reads in the text of a policy: each kind of mistake, and what is none of it."""

from __future__ import annotations

import pytest

from engine.documents import read_documents
from engine.errors import InvalidFileError
from engine.policy.compile import compile_policy
from engine.policy_lint import Check, policy_warnings
from tests.engine.policy.worlds import policy

_CONTRADICTION = """
match:
  objectSelector:
    matchLabels: { a: b }
    matchExpressions: [{ key: a, operator: NotIn, values: [b] }]"""


def _of(spec: str) -> list[str]:
    return [str(each) for each in policy_warnings(policy(spec))]


def _filter(expression: str) -> str:
    return f"filters:\n- name: r\n  expression: |-\n    {expression}"


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("scores: [{name: r, expression: \"node.labels.a == '{{ .Values.a }}' ? 1 : 0\"}]", 1),
        ("filters:\n- name: r\n  expression: node.ready\n  message: only ${POOL}", 4),
        ("filters:\n- plugin: LoadAware\n- {name: r, expression: \"node.labels.a == '$POOL'\"}", 3),
        ("filters: [{name: r, expression: \"node.labels.a == '<your-pool>'\"}]", 1),
        ("filters: [{name: r, expression: \"node.labels.a == '{% pool %}'\"}]", 1),
    ],
)
def test_what_a_template_was_to_replace_is_named_where_it_stands(spec: str, line: int) -> None:
    (warning,) = policy_warnings(policy(spec))
    assert warning.check is Check.TEMPLATE
    assert warning.part == "r"
    assert "a template was not rendered" in warning.message
    text = warning.place.source
    assert text.strip() == spec.splitlines()[line - 1].strip()


@pytest.mark.parametrize(
    "text",
    [
        "metadata: { name: {{ .Release.Name }} }",
        "metadata:\n  name: {{ .Release.Name }}-web",
        "metadata:\n  name: ${NAME}",
        "{{- if .Values.on }}\nmetadata: { name: p }\n{{- end }}",
        "metadata: { name: p }\nspec: { filters: [{ name: r, expression: a == {{ b }} }] }",
    ],
)
def test_a_template_that_makes_no_document_is_named_as_the_cause(text: str) -> None:
    head = "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\n"
    try:
        documents = read_documents(f"{head}{text}".encode(), "f.yaml")
        problems = [each for document in documents for each in compile_policy(document)[1]]
    except InvalidFileError as refused:
        problems = [*refused.problems]
    found = [f"{each.message} {each.hint}" for each in problems]
    assert any("a template was not rendered" in each for each in found)


@pytest.mark.parametrize(
    "expression",
    [
        "node.name.matches('^a{2}$')",
        "node.labels[?'a'].orValue('') == '$'",
        "node.labels[?'price'].orValue('') == 'US$'",
        "{'a': 1}['a'] == 1 && node.ready",
    ],
)
def test_what_only_looks_like_a_template_is_none(expression: str) -> None:
    assert [each for each in _of(_filter(expression)) if "template" in each] == []


@pytest.mark.parametrize(
    ("expression", "warning"),
    [
        ("node.podCount > 10 || node.podCount < 20", "is always true"),
        ("node.podCount > 20 && node.podCount < 10", "is never true"),
        ("(node.labels.a != 'x' || node.labels.a != 'y') && node.ready", "is always true"),
        ("node.ready && !node.ready", "is never true"),
        ("node.labels.a == node.labels.a", "compares `node.labels.a` with itself"),
        ("node.ready || node.ready", "`node.ready` stands there twice"),
        ("size(node.taints) >= 0", "always true: no size is below 0"),
        ("node.labels.a == 'x' ? node.ready : node.ready", "is `node.ready` either way"),
    ],
)
def test_logic_that_comes_to_the_same_always_is_named(expression: str, warning: str) -> None:
    (found,) = _of(_filter(expression))
    assert warning in found


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels[?'a'].orValue('') != 'x' && node.labels[?'a'].orValue('') != 'y'",
        "node.labels.a == 'x' || node.labels.a == 'y'",
        "node.labels.a == 'x' || node.labels[?'b'].orValue('') != 'x'",
        "node.podCount > 10 && node.podCount < 20",
        "size(node.taints) > 0 || node.podCount > 3",
        "node.ready || node.unschedulable",
        "has(node.usage) && node.usage.cpu < 4.0 || !has(node.usage)",
        "node.labels['kubernetes.io/arch'] in ['arm64', 'amd64']",
        "node.labels[?'example.com/zones'].orValue('') == 'a'",
        "node.labels[?'topology.ebs.csi.aws.com/zone'].orValue('') == 'a'",
        "node.labels.name > 'm'",
        "node.conditions.exists(c, c.type == 'GPUHealthy' && c.status == 'True')",
        "node.conditions.filter(c, c.type == 'Ready').all(c, c.status == 'True')",
        "!node.conditions.filter(c, c.type != 'Ready').exists(c, c.status == 'True')",
        "!node.conditions.filter(c, c.status == 'True').exists(c, c.type == 'DiskPressure')",
        "'ScaledJob' in pod.ownerKinds || node.ready",
        "pod.name == 'web-0' || node.ready",
        "object.spec.containers.exists(c, c.image == 'nginx') || node.ready",
        "0.5 * node.usage.cpu / node.allocatable.cpu + node.usage.memory / 4294967296.0 < 8.0",
    ],
)
def test_what_means_something_is_none(expression: str) -> None:
    assert _of(_filter(expression)) == []


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        (
            "placement: {groupLabels: [topology.kubernetes.io/zones]}",
            "write `topology.kubernetes.io/zone`",
        ),
        (
            "placement: {groupLabels: [node.kubernetes.io/instance_type]}",
            "write `node.kubernetes.io/instance-type`",
        ),
        (
            "match: {namespaceSelector: {matchLabels: {name: prod}}}",
            "its name is the label `kubernetes.io/metadata.name`",
        ),
        (
            "match: {objectSelector: {matchLabels: {app.kubernetes.io/nam: web}}}",
            "write `app.kubernetes.io/name`",
        ),
        (_CONTRADICTION, "it selects no pod"),
    ],
)
def test_labels_outside_of_expressions_are_read_too(spec: str, warning: str) -> None:
    (found,) = policy_warnings(policy(f"{spec}\nfilters: [{{name: r, expression: node.ready}}]"))
    assert warning in str(found)
    assert found.place.line > 1


_LIMITS = "node.allocatable.cpu - pod.limits.cpu"


@pytest.mark.parametrize(
    ("match", "score"),
    [
        ("", f"{{expression: {_LIMITS}, onError: IgnoreRule}}"),
        ("", "{expression: \"node.podCount + int(pod.limits[?'cpu'].orValue(0.0))\"}"),
        (
            "match: {matchConditions: [{name: m, expression: \"'cpu' in pod.limits\"}]}",
            f"{{expression: {_LIMITS}}}",
        ),
        (
            "match: {matchConditions: [{name: m, expression: \"pod.qosClass == 'Guaranteed'\"}]}",
            f"{{expression: {_LIMITS}}}",
        ),
        (
            "match: {objectSelector: {matchLabels: {tier: web}}}",
            "{expression: \"pod.labels.tier == 'a' && node.ready ? 1 : 0\"}",
        ),
    ],
)
def test_what_is_asked_for_first_is_not_absent(match: str, score: str) -> None:
    assert _of(f"{match}\nscores: [{{name: r, {score[1:]}]") == []
