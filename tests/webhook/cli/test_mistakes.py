"""What `stowplan lint` answers to the mistakes that authors of policies make."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

import pytest

from tests.webhook.cli.running import Ran, Stowplan

HEAD = "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: p}\n"


class Mistake(NamedTuple):
    """A mistake in the `spec` of a policy, and parts of the answer."""

    spec: str
    answer: tuple[str, ...]


def _ratios(text: str) -> str:
    return f"filters: [{{plugin: LimitAware, args: {{defaultLimitToAllocatableRatio: {text}}}}}]"


def _load(text: str) -> str:
    return f"filters: [{{plugin: LoadAware, args: {{{text}}}}}]"


def _score(plugin: str, args: str) -> str:
    return f"scores: [{{plugin: {plugin}, args: {{{args}}}}}]"


def _scored(expression: str) -> str:
    return f"scores: [{{name: r, expression: {expression!r}}}]"


def _filtered(expression: str) -> str:
    return f"filters: [{{name: r, expression: {expression!r}}}]"


PERCENT = "expected a whole number of percent"

REFUSED = (
    # Args of plugins.
    Mistake(_ratios('{memory: "1.5"}'), (PERCENT, 'hint: write 150 or "150%"')),
    Mistake(_ratios("{memory: 1.5}"), (PERCENT, 'hint: write 150 or "150%"')),
    Mistake(_ratios('{cpu: "150"}'), (PERCENT, 'hint: write 150 or "150%"')),
    Mistake(_ratios('{cpu: "abc"}'), (PERCENT, 'hint: such as 150 or "150%"')),
    Mistake(_ratios("{cpu: 1e300}"), (PERCENT, 'hint: such as 150 or "150%"')),
    Mistake(_ratios("{cpu: true}"), (PERCENT, 'hint: such as 150 or "150%"')),
    Mistake(_ratios("{cpu: null}"), (PERCENT, 'hint: such as 150 or "150%"')),
    Mistake(_ratios("150"), ("expected a mapping of keys to values",)),
    Mistake(_load("usageThresholds: {cpu: 0.65}"), (PERCENT, "hint: write 65 for 65 %")),
    Mistake(_load("usageThresholds: {cpu: 65%}"), ("hint: without the percent sign: 65",)),
    Mistake(_load("usageThresholds: {CPU: 65}"), ("a resource `CPU`", "did you mean `cpu`?")),
    Mistake(_load("estimatedScalingFactors: {cpu: 0.8}"), (PERCENT, "hint: write 80 for 80 %")),
    Mistake(
        _load("nodeMetricExpirationSeconds: 3m"),
        ("expected a whole number of seconds", "hint: write 180"),
    ),
    Mistake(_load('nodeMetricExpirationSeconds: "180"'), ("hint: without quotes: 180",)),
    Mistake(_load("filterExpiredNodeMetrics: yes"), ("expected true or false",)),
    Mistake(_load('filterExpiredNodeMetrics: "true"'), ("hint: without quotes: true",)),
    Mistake(
        _load("aggregated: {scoreAggregationType: p96}"),
        ("`p96` is not `avg` or `p50` or `p90` or `p95` or `p99`", "did you mean `p99`?"),
    ),
    Mistake(_score("TargetLoadPacking", "targetUtilization: 0.6"), (PERCENT, "write 60 for 60 %")),
    Mistake(
        _score("TargetLoadPacking", "defaultRequests: {cpu: 2 cores}"),
        ("`2 cores` is not a quantity", "hint: such as 2, `500m` or `4Gi`"),
    ),
    Mistake(
        _score("ResourceLimitAware", "defaultLimits: {cpu: [1]}"),
        ("expected a quantity", "hint: such as 2, `500m` or `4Gi`"),
    ),
    Mistake(_score("NetworkOverhead", "namespaces: shop"), ("hint: in a list: [shop]",)),
    Mistake("filters: [{plugin: LoadAware, args: 65}]", ("expected a mapping of keys to values",)),
    Mistake(
        _score("NodeResourcesFit", "scoringStrategy: MostAllocated"),
        (
            "expected a mapping of keys to values",
            "write `scoringStrategy: { type: MostAllocated }`",
        ),
    ),
    Mistake(
        _score("NodeResourcesFit", "scoringStrategy: {resources: {cpu: 2}}"),
        ("expected a list", "hint: write `resources: [{ name: cpu, weight: 2 }]`"),
    ),
    Mistake(
        "scores: [{plugin: NodeResourcesMostAllocated}]",
        (
            "unknown plugin",
            "`plugin: NodeResourcesFit` with `args: { scoringStrategy: { type: MostAlloc",
        ),
    ),
    Mistake(_load("usageThresholds: {memory: 8Gi}"), (PERCENT, "percent of what a node has")),
    Mistake("filters: [{plugin: TaintToleration, args: {a: 1}}]", ("hint: no key is known here",)),
    Mistake(
        _score(
            "PodTopologySpread",
            "defaultingType: List, defaultConstraints: [{maxSkew: 1,"
            " topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
        ),
        ("default constraints reject no node here", "a score takes `ScheduleAnyway`"),
    ),
    Mistake("scores: [{plugin: LoadAware, weight: 0}]", ("at least 1", "switch the score off")),
    Mistake(
        "scores: [{plugin: LoadAware, weight: 0.5}]", ("whole number", "for half of 2 write 1")
    ),
    # Words of others.
    Mistake("placement: {whenNoneFits: Reject}", ("`Reject` is not", "did you mean `Deny`?")),
    Mistake("placement: {dynamicFilters: true}", ("`true` is not", "did you mean `Required`?")),
    Mistake("placement: {hold: true}", ("unknown key `hold`", "`releaseInOrder: true`")),
    Mistake("placement: {schedulerScores: off}", ("expected weights", "hint: write `Off`\n")),
    Mistake("filters: [{name: r, cel: a}]", ("unknown key `cel`", "did you mean `expression`?")),
    Mistake(
        "match: {namespaceSelector: [prod]}",
        ("expected a mapping", "kubernetes.io/metadata.name, operator: In, values: [prod]"),
    ),
    Mistake(
        "match: {objectSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}}",
        ("`Equals` is not `In`", "did you mean `In`?"),
    ),
    Mistake(
        "match: {objectSelector: {matchExpressions: [{key: a, operator: Gt, values: ['5']}]}}",
        ("`Gt` is not `In`", "selectors compare no numbers: write a match condition"),
    ),
    Mistake(
        "filters: [node.podCount < 50]",
        (
            "expected a mapping",
            'hint: write its parts: { name: .., expression: "node.podCount < 50" }',
        ),
    ),
    Mistake(_filtered("'web' in pod.name"), ("`in` does not", "write `pod.name.contains('web')`")),
    Mistake(_filtered("pod.name in 'a, b'"), ("`in` does not", "write `pod.name in ['a', 'b']`")),
    Mistake(
        _filtered("pod.name.startsWith('a', 'b')"),
        ("takes 1 argument", "write `pod.name.startsWith('a') || pod.name.startsWith('b')`"),
    ),
    Mistake(_filtered("!node.labels['gpu']"), ("not `string`", "write `'gpu' in node.labels`")),
    Mistake(
        _filtered("node.labels.get('pool', '') == 'a'"),
        ("unknown function `get`", "write `node.labels[?'pool'].orValue('')`"),
    ),
    Mistake(
        _filtered("quantity('64Gi').isLessThan(node.allocatable.memory)"),
        ("write `quantity('64Gi').asApproximateFloat() < node.allocatable.memory`",),
    ),
    Mistake(
        _filtered("quantity(node.allocatable.memory) > quantity('64Gi')"),
        ("`quantity` does not take (double)", "compare it with `quantity('4Gi')"),
    ),
    Mistake(_filtered("'gpu' in node.labels.values()"), ("write `x.exists(key, value, ..)`",)),
    Mistake(_filtered("node.podCount"), ("a filter must be a `bool`", "compare it, as `x < 5`")),
    Mistake(_scored("node.ready && 1"), ("not `int`", "for a number write `test ? 1 : 0`")),
    Mistake(
        "filters: [{name: r, expression: [node.podCount < 50]}]",
        ("expected a string", 'without brackets: "node.podCount < 50"'),
    ),
    Mistake(
        _score("ImageLocality", "weight: 5"),
        ("unknown key `weight`", "write `weight` beside `args`"),
    ),
    Mistake(
        _scored("'a' in node.labels ? 1 : 0 + 'b' in node.labels ? 1 : 0"),
        ("`+` does not apply", "put each choice of a sum in parentheses"),
    ),
    Mistake("match: {labels: {app: web}}", ("unknown key `labels`", "write `objectSelector: {")),
    Mistake("match: {podSelector: {}}", ("unknown key `podSelector`", "write `objectSelector: {")),
    Mistake("match: {namespace: a}", ("unknown key `namespace`", "`pod.namespace == 'a'`")),
    Mistake("exclude: {namespaces: [a]}", ("unknown key", "write a match condition, such as `!(")),
    Mistake("expression: a", ("unknown key", "indent it below the rule that it belongs to")),
    Mistake("filters:", ("expected a list", "indent what belongs to it")),
    Mistake("mode: [Audit]", ("is not `Enforce` or `Audit`", "without brackets: Audit")),
    Mistake(
        "match: {objectSelector: {matchLabels: {app: [a, b]}}}",
        ("expected a string", "matchExpressions: [{ key: app, operator: In, values: [a, b] }]"),
    ),
    Mistake(
        "placement: {groupLabels: [topology.kubernetes.io/zone=a]}",
        ("is not a label key", "write the key alone: topology.kubernetes.io/zone"),
    ),
    Mistake(
        "filters: [{name: r, expression: [node.labels, a] in x}]",
        ("not YAML", "a text in it ends at `,` and at a bracket"),
    ),
    Mistake(
        "placement: {schedulerScores: {PodTopologySpread: Off}}",
        ("expected a whole number", "hint: for none write 0"),
    ),
    Mistake(_scored('"node.podCount"'), ("not `string`", "write `node.podCount` without quotes")),
    # Options.
    Mistake(
        "placement: Binding", ("expected a mapping", "hint: write `placement: { at: Binding }`")
    ),
    Mistake("placement: {at: bind}", ("`bind` is not", "did you mean `Binding`?")),
    Mistake("placement: {preemption: no}", ("`no` is not `Off` or", "did you mean `Off`?")),
    Mistake(
        "failurePolicy: Fail", ("unknown key `failurePolicy`", "each filter and score has `onE")
    ),
    Mistake(
        _filtered("authorizer.group('a').resource('b').check('use').allowed()"),
        ("unknown name `authorizer`", "hint: a policy asks for no rights"),
    ),
    Mistake("mode: DryRun", ("`DryRun` is not `Enforce` or `Audit`", "did you mean `Audit`?")),
    Mistake(
        "placement: {at: Binding, minGain: 0.05}",
        ("expected a whole number of points of 100", "hint: write 5"),
    ),
    Mistake(
        "filters: {r: node.podCount < 50}",
        ("expected a list", "hint: write `filters: [{ name: r, .. }]`"),
    ),
    Mistake(
        """filters: [{name: r, expression: "node.labels["pool"] == 'a'"}]""",
        ("not YAML", "use `'` for texts inside"),
    ),
    Mistake(
        "filters: [{name: r, expression: \"!pod.namespace in ['a']\"}]",
        ("expected `bool`, not `string`", "hint: write `!(pod.namespace in ['a'])`"),
    ),
    # Parts of a scheduler's configuration.
    Mistake(
        "filters: [{plugin: NodeResourcesFit, args: {kind: LoadAwareSchedulingArgs}}]",
        ("these are args of plugin `LoadAware`",),
    ),
    Mistake(
        "filters: [{name: Coscheduling, args: {permitWaitingTimeSeconds: 60}}]",
        ("give either `plugin` or `expression`", "hint: there is no plugin `Coscheduling`"),
    ),
    # Expressions.
    *(
        Mistake(_filtered(expression), (f"hint: {hint}",))
        for expression, hint in (
            ("node.labels.my-label == 'a'", "write `node.labels['my-label']`"),
            (
                "node.labels.topology.kubernetes.io/zone == 'a'",
                "write `node.labels['topology.kubernetes.io/zone']`",
            ),
            ("pod.requests.nvidia.com/gpu > 0", "write `pod.requests['nvidia.com/gpu']`"),
            ("node.usage.memory < 4096Mi", "write `quantity('4096Mi').asApproximateFloat()`"),
            ("node.usage.memory < 4Gi", "write `quantity('4Gi').asApproximateFloat()`"),
            ("node.usage.cpu < 4000m", "write `quantity('4000m').asApproximateFloat()`"),
            ("node.usage.cpu / node.allocatable.cpu < 65%", "there are no percentages"),
            ("max(node.usage.cpu, 1.0) > 2.0", "write `math.greatest(a, b)`"),
            ("math.max(node.usage.cpu, 1.0) > 2.0", "write `math.greatest(a, b)`"),
            ("abs(node.usage.cpu) > 2.0", "write `math.abs(x)`"),
            ("node.ready and node.unschedulable", "write `&&`"),
            ("not node.ready", "write `!`"),
            ("node.name =~ 'a'", "write `x.matches('..')`"),
            ("node.name in ('a', 'b')", "a list is written `['a', 'b']`"),
            ("node.labels.has('x')", "write `'x' in node.labels`"),
            ("node.status.ready", "write `node.allocatable` or `node.conditions`"),
            ("pod.spec.nodeName == ''", "write `object.spec`"),
            ("pod.metadata.name == ''", "write `pod.labels`, or `object.metadata`"),
            ("namespace.labels.team == 'a'", "its name is `pod.namespace`, its labels are"),
            ("node.labels.gpu == true", "a string is no bool: compare it with `'true'`"),
            ("node.ready && node.labels.gpu", "a string is no bool: compare it with `'true'`"),
            ("!'gpu' in node.labels", "write `!('gpu' in node.labels)`"),
            ("node.usage.memory < 4GiB", "write `quantity('4Gi').asApproximateFloat()`"),
            ("node.labels.get('a', 'b') == 'b'", "write `node.labels[?'a'].orValue('b')`"),
            ("node.labels.a ?? 'b' == 'b'", "write `x[?'key'].orValue('b')`"),
            ("defined(node.usage)", "write `has(a.b)`, or `'b' in a`"),
            ("'a' in node.labels.keys()", "write `'key' in x`, or `x.exists(key, ..)`"),
            ("now - node.creationTimestamp > 600", "write `duration('600s')`"),
            ("now - node.creationTimestamp > duration(600)", "write `duration('600s')`"),
            (
                "node.conditions.Ready == 'True'",
                "write `node.conditions.exists(e, e.type == 'Ready')`",
            ),
            ("pod.tolerations.contains('a')", "write `pod.tolerations.exists(e, ..)`"),
            ("node.hostname == 'a'", "write `node.name`, or `node.labels["),
            ("node.free.cpu > 1.0", "write `node.allocatable.cpu - node.requested.cpu`"),
            ("pod.cpu > 1.0", "amounts are at `pod.requests` and `pod.limits`"),
            ("pod.resources.limits.cpu > 1.0", "amounts are at `pod.requests` and `pod.limits`"),
            ("1 < node.allocatable.cpu < 4", "write `a < x && x < b`"),
            ("node.usage.cpu ** 2 > 1.0", "there is no power: write the product"),
            ("node.name in {'a', 'b'}", "a list is written `['a', 'b']`"),
            ("node.name eq 'a'", "write `==`"),
            ("node.name == `a`", "a string is written in quotes: `'a'`"),
            (
                "quantity(node.allocatable.memory).isGreaterThan(quantity('4Gi'))",
                "an amount is a number: compare it with `quantity('4Gi').asApproximateFloat()`",
            ),
            ("this.ready", "write `node` or `pod`"),
            ("node.labels.zone", "compare it, as `x == 'a'`"),
            ("node.labels[pool] == 'a'", "write `node.labels['pool']`"),
            ("node.labels[?'a'] == 'a'", "write `node.labels[?'a'].orValue('') == 'a'`"),
            ("pod.ownerKinds == 'Job'", "write `'Job' in pod.ownerKinds`"),
            ("now - node.creationTimestamp > duration('30d')", "write `duration('720h')`"),
            ("node.name == \u2018a\u2019", "a string is written in straight quotes: `'a'`"),
            ("node.name ==\u00a0'a'", "write a blank, or nothing"),
            ("node.ready == 'True'", "`node.ready` is a bool: write `node.ready`"),
            ("node.labels.a == 'a' || 'b'", "write `node.labels.a in ['a', 'b']`"),
            ("node.usage.disk > 1.0", "`node.usage` has cpu and memory"),
            ("node.creationTimestamp < '2026-01-01'", "write `timestamp('2026-01-01T00:00:00Z')`"),
            ("node.labels.a == {{ .Values.a }}", "a template was not rendered"),
            (
                "node.conditions.exists(c, c.status == true)",
                "a status is a string: compare it with `'True'`",
            ),
        )
    ),
    Mistake(_scored("node.ready"), ("a score must be a number", "write `test ? 1 : 0`")),
    Mistake(
        _filtered("node.name.contains('a') == 1"),
        ("`==` does not apply to `bool` and `int`", "hint: a bool is no number: it stands alone"),
    ),
    Mistake(_filtered("node.taints.exist(t, t.key == 'a')"), ("hint: did you mean `exists`?",)),
    Mistake(_filtered("node.taints.exists(t)"), ("the macro `exists` takes other arguments",)),
    Mistake(
        "variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]",
        ("`variables` has no field `b`", "hint: a variable reads only those above it"),
    ),
    # Keys.
    Mistake("dynamicFilters: Required", ("hint: `dynamicFilters` is a key of `spec.placement`",)),
    Mistake(
        "placement: {dynamicFilters: MarkedRequired}",
        ("`MarkedRequired` is not `Preferred` or `Required`", "hint: decide `at: Binding`: "),
    ),
    Mistake("weight: 5", ("hint: `weight` is a key of `spec.scores[]`",)),
    Mistake("rules: []", ("hint: write them as `filters` or `scores`",)),
    Mistake("nodes: []", ("hint: the keys here are `priority`, `mode`, `match`, `variables`,",)),
    Mistake(_score("Peaks", "nodePowerModel: {}"), (":5:51: must not be empty",)),
    Mistake(_scored("node.labels.price"), ("not `string`", "convert it, with `double(..)`")),
    Mistake(
        "variables: [{name: wantsGpu, expression: 'true'}]\n"
        "filters: [{name: r, expression: wantsGpu}]",
        ("unknown name `wantsGpu`", "hint: write `variables.wantsGpu`"),
    ),
    # Selectors.
    Mistake(
        "match: {namespaceSelector: {tier: prod}}",
        ("`tier` is not a part of a label selector", "hint: matchLabels: { tier: prod }"),
    ),
    Mistake(
        "match: {matchLabels: {tier: prod}}",
        ("unknown key `matchLabels`", "a key of `spec.match.namespaceSelector` or `spec.match."),
    ),
    Mistake(
        "match: {matchConditions: [pod.priority > 1]}",
        ('hint: write its parts: { name: .., expression: "pod.priority > 1" }',),
    ),
    Mistake(
        _score("ResourceLimitAware", "resources: [cpu]"), ("hint: write its parts: { name: cpu }",)
    ),
    Mistake(
        "match: {objectSelector: {matchLabels: {tier: '${TIER}'}}}",
        ("`${TIER}` is not a label value", "hint: a template was not rendered"),
    ),
    Mistake(
        "match: {objectSelector: {matchLabel: {tier: prod}}}",
        ("unknown key `matchLabel`", "hint: did you mean `matchLabels`?"),
    ),
    Mistake(
        "match: {objectSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}",
        ("`in` is not `In` or `NotIn`", "hint: did you mean `In`?"),
    ),
    Mistake(
        "match: {objectSelector: {matchExpressions: [{key: a, operator: In, values: b}]}}",
        ("expected a list", "hint: in a list: [b]"),
    ),
)

WARNED = (
    Mistake(_ratios("{cpu: 4}"), ("for 4 times what a node offers write 400",)),
    Mistake("filters: [{plugin: LimitAware}]", ("without `defaultLimitToAllocatableRatio`",)),
    Mistake(_load("usageThresholds: {cpu: 1}"), ("`usageThresholds` of cpu is 1: 1 % of what",)),
    Mistake(_load("prodUsageThresholds: {cpu: 500}"), ("cpu is 500, which is not within 0..100",)),
    Mistake(
        _load("aggregated: {usageThresholds: {cpu: 65}}"),
        ("`aggregated.usageThresholds` need a `usageAggregationType`, such as `p95`",),
    ),
    Mistake(_score("TargetLoadPacking", "targetUtilization: -1"), ("-1 counts as 40",)),
    Mistake(
        _score("LoadVariationRiskBalancing", "safeVarianceMargin: -2"),
        ("`safeVarianceMargin` -2 counts as 1",),
    ),
    Mistake(
        _score("LowRiskOverCommitment", "riskLimitWeights: {cpu: 50}"),
        ("a weight of 50 in `riskLimitWeights` is not within 0..1, and counts as 0.5",),
    ),
    Mistake(
        _score("LowRiskOverCommitment", "smoothingWindowSize: 0"),
        ("`smoothingWindowSize` 0 counts as 5",),
    ),
    # Effects on the sample cluster.
    Mistake("filters: []", ("it has neither filters nor scores: it has no effect",)),
    Mistake(_scored("1 / 0"), ("r: always fails: division by zero",)),
    Mistake(_scored("5"), ("it reads nothing of the node, so all nodes get the same",)),
    Mistake(
        _scored("pod.requests.cpu"), ("it reads nothing of the node, so all nodes get the same",)
    ),
    Mistake(_scored("node.ready || true ? 1 : 0"), ("`node.ready || true` is always true",)),
    Mistake(
        _filtered("true"),
        ("r: it reads nothing of the node: for a pod it keeps all nodes, or none",),
    ),
    Mistake(
        _filtered("node.podCount < 0"),
        ("r: it rejects all 152 nodes of the built-in cluster, for each pod",),
    ),
    Mistake(
        _scored("node.allocatable.cpu - pod.limits.cpu"),
        (
            "for a pod without `pod.limits.cpu` no node gets points",
            "hint: write `'cpu' in pod.limits ? double(node.allocatable.cpu - pod.limits.cpu) : ",
        ),
    ),
    # Units.
    Mistake(
        _filtered("node.usage.memory < 4096"),
        ("`node.usage.memory` is in bytes", "hint: for 4096 Mi write `4294967296.0`"),
    ),
    Mistake(
        _filtered("node.allocatable.cpu > 4000"),
        ("`node.allocatable.cpu` is in cores", "hint: for 4000 millicores write `4`"),
    ),
    Mistake(
        _filtered("node.usage.cpu / node.allocatable.cpu < 65"),
        (
            "`node.usage.cpu` divided by `node.allocatable.cpu` is a fraction",
            "hint: for 65 % write `0.65`",
        ),
    ),
)

ACCEPTED = (
    "filters: [{name: LoadAwareScheduling, args: {kind: LoadAwareSchedulingArgs}}]",
    "scores: [{name: NodeResourcesFit, weight: 3}]",
    "filters: [{plugin: LoadAwareScheduling}]",
)

POSSIBLE = (
    "now - node.creationTimestamp > duration('10m')",
    "!node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')",
)


def _linted(stowplan: Stowplan, folder: Path, spec: str) -> Ran:
    file = folder / "policy.yaml"
    file.write_text(f"{HEAD}spec:\n{indent(dedent(spec), '  ')}\n", encoding="utf-8")
    return stowplan("lint", file)


@pytest.mark.parametrize("mistake", REFUSED, ids=lambda mistake: mistake.spec)
def test_a_mistake_is_refused_at_its_place_with_a_hint(
    stowplan: Stowplan, tmp_path: Path, mistake: Mistake
) -> None:
    ran = _linted(stowplan, tmp_path, mistake.spec)
    assert (ran.status, ran.out) == (3, "")
    line = 4 + len(mistake.spec.splitlines())  # of the last line, which has the mistake
    assert ran.err.startswith(f"{tmp_path / 'policy.yaml'}:{line}:")
    assert ran.err.count("policy.yaml:") == 1
    for part in mistake.answer:
        assert part in ran.err


@pytest.mark.parametrize("mistake", WARNED, ids=lambda mistake: mistake.spec)
def test_what_is_hardly_meant_is_a_warning(
    stowplan: Stowplan, tmp_path: Path, mistake: Mistake
) -> None:
    ran = _linted(stowplan, tmp_path, mistake.spec)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count(": warning: ") == 1
    for part in mistake.answer:
        assert part in ran.out


@pytest.mark.parametrize("spec", ACCEPTED)
def test_entries_of_a_scheduler_configuration_are_rules(
    stowplan: Stowplan, tmp_path: Path, spec: str
) -> None:
    ran = _linted(stowplan, tmp_path, spec)
    assert (ran.status, ran.err) == (0, "")
    assert "warning" not in ran.out


@pytest.mark.parametrize("expression", POSSIBLE)
def test_ages_and_conditions_of_nodes_can_be_read(
    stowplan: Stowplan, tmp_path: Path, expression: str
) -> None:
    ran = _linted(stowplan, tmp_path, _filtered(expression))
    assert (ran.status, ran.err) == (0, "")
    assert "warning" not in ran.out


def test_a_whole_scheduler_configuration_is_refused_with_the_command_that_takes_it(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {}}]}]\n"
    )
    ran = stowplan("lint", file)
    assert ran.status == 3
    assert ":2:7: `KubeSchedulerConfiguration` is not `PlacementPolicy`" in ran.err
    assert "hint: `stowplan import` makes policies of it" in ran.err


def test_a_misspelt_kind_hides_no_other_mistake(stowplan: Stowplan, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(HEAD.replace("PlacementPolicy", "PlacmentPolicy") + "spec: {filter: []}\n")
    ran = stowplan("lint", file)
    assert "`PlacmentPolicy` is not `PlacementPolicy`" in ran.err
    assert "hint: did you mean `PlacementPolicy`?" in ran.err
    assert "unknown key `filter`" in ran.err


def test_another_kind_altogether_is_one_mistake(stowplan: Stowplan, tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text("apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 1}\n")
    ran = stowplan("lint", file)
    assert ran.err.count("deployment.yaml:") == 1
    assert ":2:7: `Deployment` is not `PlacementPolicy`" in ran.err


@pytest.mark.parametrize(("plugin", "status"), [("LoadAware", 0), ("LoadAwre", 3)])
def test_a_policy_may_come_from_standard_input(
    stowplan: Stowplan, monkeypatch: pytest.MonkeyPatch, plugin: str, status: int
) -> None:
    text = f"{HEAD}spec: {{filters: [{{plugin: {plugin}}}]}}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    ran = stowplan("lint", "-")
    assert ran.status == status
    assert ("<stdin>:4:27: unknown plugin `LoadAwre`" in ran.err) is bool(status)


def test_an_unknown_option_is_no_path(stowplan: Stowplan) -> None:
    ran = stowplan("lint", "--verbos", "policies")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("unknown option: `--verbos`\nhint: ")


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (
            HEAD.replace("{name: p}", "{name: p, namespace: team-a}") + "spec: {}\n",
            ("unknown key `namespace`", "write `kind: NamespacedPlacementPolicy`"),
        ),
        (
            HEAD.replace("{name: p}", "{name: My_Policy}") + "spec: {}\n",
            ("`My_Policy` is no name", "hint: lower-case letters, digits, `-` and `.`"),
        ),
        (
            HEAD.replace("{name: p}", "{name: p}\nmetadata: {name: q}") + "spec: {}\n",
            ("duplicate key `metadata`: the first one is on line 3",),
        ),
        (
            HEAD.replace("{name: p}", "{name: {{ .Release.Name }}}") + "spec: {}\n",
            (":3:18: a template was not rendered", "hint: apply what renders it, such as `helm"),
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {a.yaml: b}\n",
            ("hint: a policy is a document of its own",),
        ),
    ],
)
def test_a_mistake_beside_the_spec_has_a_hint_that_helps(
    stowplan: Stowplan, tmp_path: Path, text: str, answers: tuple[str, ...]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    ran = stowplan("lint", file)
    assert ran.status == 3
    for answer in answers:
        assert answer in ran.err


def test_a_file_in_another_encoding_is_named_as_such(stowplan: Stowplan, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(f"{HEAD}spec: {{}}\n".encode("utf-16"))
    ran = stowplan("lint", file)
    assert "not valid UTF-8" in ran.err
    assert "hint: it is in UTF-16: save it as UTF-8" in ran.err


def test_foreign_kinds_of_one_name_are_one_mistake_each(stowplan: Stowplan, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n"
    file.write_text(f"{quota}---\n{quota}---\n{quota}")
    ran = stowplan("lint", file)
    assert ran.err.count("policy.yaml:") == 3
    assert "already" not in ran.err
