from __future__ import annotations

import pytest

from engine.errors import InvalidFileError
from engine.model.policy_resource import DynamicFilters, PlacementAt, PlacementOptions, WhenNoneFits
from engine.policy import Mode
from engine.policy.schema import OnFilterError, OnScoreError, Placement
from tests.engine.policy.worlds import policy


def _mistakes(spec: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidFileError) as caught:
        policy(spec)
    return [(problem.message, problem.hint) for problem in caught.value.problems]


def test_what_is_left_out_has_the_documented_defaults() -> None:
    compiled = policy(
        """
        filters: [{plugin: LimitAware}]
        scores: [{plugin: LoadAware}]
        """
    )
    assert (compiled.mode, compiled.priority) == (Mode.ENFORCE, 0)
    assert compiled.placement == PlacementOptions() == Placement().options
    assert [rule.name for rule in compiled.filters] == ["LimitAware"]
    assert compiled.filters[0].on_error is OnFilterError.REJECT_NODE
    assert [(rule.name, rule.weight) for rule in compiled.scores] == [("LoadAware", 1)]
    assert compiled.scores[0].on_error is OnScoreError.ZERO_SCORE


def test_everything_that_is_written_is_heeded() -> None:
    compiled = policy(
        """
        priority: -5
        mode: Audit
        filters: [{name: limits, plugin: LimitAware, onError: IgnoreRule}]
        scores: [{name: load, plugin: LoadAware, weight: 100, onError: IgnoreRule}]
        placement:
          dynamicFilters: Required
          whenNoneFits: Deny
          maxNodes: 256
          groupLabels: [pool]
        """
    )
    assert (compiled.mode, compiled.priority) == (Mode.AUDIT, -5)
    assert compiled.placement == PlacementOptions(
        dynamic_filters=DynamicFilters.REQUIRED,
        when_none_fits=WhenNoneFits.DENY,
        max_nodes=256,
        group_labels=("pool",),
    )
    assert (compiled.filters[0].policy, compiled.filters[0].name) == ("p", "limits")
    assert compiled.filters[0].on_error is OnFilterError.IGNORE_RULE
    assert (compiled.scores[0].weight, compiled.scores[0].name) == (100, "load")
    assert compiled.scores[0].on_error is OnScoreError.IGNORE_RULE


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("filters: [{}]", "give either `plugin` or `expression`"),
        (
            "filters: [{plugin: LimitAware, expression: 'true'}]",
            "give either `plugin` or `expression`",
        ),
        ("filters: [{expression: 'true'}]", "a rule with an `expression` needs a `name`"),
        ("filters: [{name: a, expression: 'true', args: {}}]", "`args` belong to a `plugin`"),
        (
            "filters: [{plugin: LimitAware, message: no}]",
            "a plugin gives its own reasons, drop `message`",
        ),
        (
            "filters: [{plugin: LimitAware}, {plugin: LimitAware}]",
            "name `LimitAware` is used twice: the first one is on line 5",
        ),
        (
            "variables: [{name: a, expression: '1'}, {name: a, expression: '2'}]",
            "name `a` is used twice: the first one is on line 5",
        ),
        ("filters: [{name: a, expression: ''}]", "must not be empty"),
        ("filters: [{name: a, expression: 'true', weight: 1}]", "unknown key `weight`"),
        ("filters: {}", "expected a list"),
        ("placement: {maxNodes: 257}", "must be at most 256"),
        ("placement: {maxNodes: 1.5}", "expected a whole number"),
        ("placement: {schedulerScores: Of}", "expected weights by plugin"),
        ("placement: {schedulerScores: {NodeAffinity: 101}}", "must be at most 100"),
        ("placement: {schedulerScores: {LoadAware: 1}}", "unknown key `LoadAware`"),
        ("scores: [{plugin: LoadAware, weight: 0}]", "must be at least 1"),
        ("scores: [{plugin: LoadAware, weight: '1'}]", "expected a whole number"),
        ("match: {objectSelector: {matchLabels: {a b: c}}}", "`a b` is not a label key"),
        (
            "match: {objectSelector: {matchExpressions: [{key: a, operator: In}]}}",
            "must not be empty for In and NotIn",
        ),
        (
            "filters: [{name: a, expression: '1'}]",
            "a filter must be a `bool`, true for nodes that pass, not `int`",
        ),
        (
            "match: {matchConditions: [{name: a, expression: pod.name}]}",
            "a condition must be a `bool`, not `string`",
        ),
    ],
)
def test_a_mistake_is_named(spec: str, message: str) -> None:
    assert [found for found, _ in _mistakes(spec)] == [message]


_RUNS_AS = "; a pod runs as `object.spec.serviceAccountName`"


@pytest.mark.parametrize(
    ("spec", "mistake"),
    [
        ("modus: Audit", ("unknown key `modus`", "did you mean `mode`?")),
        (
            "placement: {dynamicFilter: Required}",
            ("unknown key `dynamicFilter`", "did you mean `dynamicFilters`?"),
        ),
        ("mode: audit", ("`audit` is not `Enforce` or `Audit`", "did you mean `Audit`?")),
        (
            "match: {objectSelector: {matchLabels: {a: 1}}}",
            ("expected a string", 'put it in quotes: "1"'),
        ),
        (
            "match: {objectSelector: {matchLabels: {a: 1.10}}}",
            ("expected a string", 'put it in quotes: "1.10"'),
        ),
        (
            "match: {objectSelector: {matchLabels: {a: null}}}",
            ("expected a string", 'put it in quotes: "null"'),
        ),
        (
            "filters: [{plugin: LoadAware, usageThresholds: {cpu: 65}}]",
            (
                "unknown key `usageThresholds`",
                "write it below `args`: `usageThresholds` is an arg of a plugin",
            ),
        ),
        (
            "filters:\n- name: a\n  expression: node.name == 'node #1'",
            (
                "the text that begins with `'` is not closed",
                "to YAML a comment begins at ` #`: put the expression below a `|-`",
            ),
        ),
        (
            (
                "match: {objectSelector: {matchExpressions:"
                " [{key: a, operator: In, values: ['b, c']}]}}"
            ),
            ("`b, c` is not a label value", "write each value by itself: `values: [b, c]`"),
        ),
        (
            "match: {namespaceSelector: {matchLabels: {team: 'shop,batch'}}}",
            (
                "`shop,batch` is not a label value",
                (
                    "for any of several write"
                    " `matchExpressions: [{ key: team, operator: In, values: [shop, batch] }]`"
                ),
            ),
        ),
        (
            (
                "match: {objectSelector: {matchExpressions:"
                " [{key: tier, operator: Exists, values: [web]}]}}"
            ),
            (
                "must be empty for Exists and DoesNotExist",
                "for these values of `tier` write `operator: In`",
            ),
        ),
        (
            (
                "match: {objectSelector: {matchExpressions:"
                " [{key: tier, operator: DoesNotExist, values: [web]}]}}"
            ),
            (
                "must be empty for Exists and DoesNotExist",
                "for these values of `tier` write `operator: NotIn`",
            ),
        ),
        (
            "placement: {schedulerScores: {NodeResourcesFit: 5}}",
            (
                "unknown key `NodeResourcesFit`",
                "a score of its own: write `- plugin: NodeResourcesFit` below `spec.scores`",
            ),
        ),
        (
            "placement: {schedulerScores: {NodeAfinity: 5}}",
            ("unknown key `NodeAfinity`", "did you mean `NodeAffinity`?"),
        ),
        (
            "scores: [{name: a, weight: -5, expression: 'node.podCount > 9 ? 1 : 0'}]",
            (
                "must be at least 1",
                (
                    "for a penalty write `weight: 5`, and turn the expression round:"
                    " `-(node.podCount > 9 ? 1 : 0)`"
                ),
            ),
        ),
        (
            "scores:\n- name: a\n  weight: -500\n  expression: |\n    node.ready\n    ? 1 : 0",
            (
                "must be at least 1",
                "for a penalty write `weight: 100`, and turn the expression round: `-(..)`",
            ),
        ),
        ("scores: [{plugin: LoadAware, weight: -5}]", ("must be at least 1", "")),
        (
            "scores: [{name: a, weight: 0, expression: '1'}]",
            ("must be at least 1", "to switch the score off, drop it"),
        ),
        (
            (
                "scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type:"
                " RequestedToCapacityRatio, resources: [{name: cpu}], requestedToCapacityRatio:"
                " {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 100}]}}}}]"
            ),
            ("not in valid range [0, 10]", "for 100 of 100 write 10"),
        ),
        (
            "filters: [{plugin: LoadAwre}]",
            ("unknown plugin `LoadAwre`", "did you mean `LoadAware`?"),
        ),
        (
            "filters: [{plugin: LoadAware, args: {usageThreshold: {cpu: 1}}}]",
            ("unknown key `usageThreshold`", "did you mean `usageThresholds`?"),
        ),
        (
            "filters: [{plugin: LoadAware, args: {aggregated: {scoreType: p95}}}]",
            ("unknown key `scoreType`", "did you mean `scoreAggregationType`?"),
        ),
        (
            "variables: [{name: a, expression: node.name}]",
            ("unknown name `node`", "`node` is known in filters and scores alone"),
        ),
        (
            "match: {matchConditions: [{name: a, expression: variables.b}]}",
            (
                "unknown name `variables`",
                "`variables` is known in variables, filters and scores alone",
            ),
        ),
        (
            "variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]",
            ("`variables` has no field `b`", "a variable reads only those above it"),
        ),
        (
            "placement: {at: Release}",
            (
                "pods are no longer decided at their release",
                "write `at: Binding`; `releaseInOrder: true` or `preemption` holds them before",
            ),
        ),
        (
            "placement: {at: Binding, whenNoneFits: Deny}",
            (
                "a pod that is decided at binding cannot be denied any more",
                "write `Wait`, which keeps it pending, or decide `at: Admission`",
            ),
        ),
        (
            "placement: {at: Admission, whenNoneFits: Wait}",
            (
                "only a pod that is decided at binding can be let wait",
                "decide `at: Binding`, or drop `whenNoneFits`",
            ),
        ),
        (
            "placement: {minGain: 3}",
            (
                "only a pod that is decided at binding is moved",
                "decide `at: Binding`, or drop `minGain`",
            ),
        ),
        (
            "{placement: {at: Binding}, variables: [{name: a, expression: request.userInfo.uid}]}",
            (
                "`request.userInfo` is not known when a pod is bound",
                "read `pod` or `object` instead, or decide `at: Admission`" + _RUNS_AS,
            ),
        ),
        (
            "{placement: {preemption: On},filters: [{name: f, expression: has(request.userInfo)}]}",
            (
                "`request.userInfo` is not known when others are evicted for a pod",
                "read `pod` or `object` instead, or drop `preemption`" + _RUNS_AS,
            ),
        ),
    ],
)
def test_a_mistake_comes_with_a_hint(spec: str, mistake: tuple[str, str]) -> None:
    assert _mistakes(spec) == [mistake]


_SELECTS = "match: {{objectSelector: {{matchExpressions: [{}]}}}}"
_SHAPE = (
    "scores: [{{plugin: NodeResourcesFit, args: {{scoringStrategy: {{resources: [{{name: cpu}}],"
    " type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape:"
    " [{{utilization: 0, score: 0}}, {{utilization: 100, score: {}}}]}}}}}}}}]"
)


@pytest.mark.parametrize(
    ("written", "old", "new"),
    [
        ("modus: Audit", "modus", "mode"),
        ("placement: {mode: Binding}", "mode: Binding", "at: Binding"),
        ("placement: {dynamicFilter: Required}", "dynamicFilter", "dynamicFilters"),
        ("mode: audit", "audit", "Audit"),
        ("match: {objectSelector: {matchLabels: {a: 1.10}}}", "1.10", '"1.10"'),
        ("match: {objectSelector: {matchLabels: {a: null}}}", "null", '"null"'),
        (
            "filters: [{plugin: LoadAware, usageThresholds: {cpu: 65}}]",
            "usageThresholds: {cpu: 65}",
            "args: {usageThresholds: {cpu: 65}}",
        ),
        (
            "filters:\n- name: a\n  expression: node.name == 'node #1'",
            "expression: ",
            "expression: |-\n    ",
        ),
        (
            _SELECTS.format("{key: a, values: ['b, c'], operator: In}"),
            "values: ['b, c']",
            "values: [b, c]",
        ),
        (
            "match: {namespaceSelector: {matchLabels: {team: 'shop,batch'}}}",
            "matchLabels: {team: 'shop,batch'}",
            "matchExpressions: [{ key: team, operator: In, values: [shop, batch] }]",
        ),
        (
            _SELECTS.format("{key: a, operator: Exists, values: [b]}"),
            "operator: Exists",
            "operator: In",
        ),
        (
            "placement: {schedulerScores: {NodeResourcesFit: 5}}",
            "placement: {schedulerScores: {NodeResourcesFit: 5}}",
            "scores:\n- plugin: NodeResourcesFit",
        ),
        ("placement: {schedulerScores: {NodeAfinity: 5}}", "NodeAfinity", "NodeAffinity"),
        (
            "scores: [{name: a, weight: -5, expression: 'node.podCount > 9 ? 1 : 0'}]",
            "weight: -5, expression: 'node.podCount > 9 ? 1 : 0'",
            "weight: 5, expression: '-(node.podCount > 9 ? 1 : 0)'",
        ),
        (_SHAPE.format(100), "score: 100", "score: 10"),
        ("filters: [{plugin: LoadAwre}]", "LoadAwre", "LoadAware"),
        (
            "filters: [{plugin: LoadAware, args: {usageThreshold: {cpu: 1}}}]",
            "usageThreshold",
            "usageThresholds",
        ),
        (
            "variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]",
            "[{name: a, expression: variables.b}, {name: b, expression: '1'}]",
            "[{name: b, expression: '1'}, {name: a, expression: variables.b}]",
        ),
        ("placement: {at: Release}", "Release", "Binding"),
        ("placement: {at: Binding, whenNoneFits: Deny}", "Deny", "Wait"),
        ("placement: {at: Admission, whenNoneFits: Wait}", "Admission", "Binding"),
        ("placement: {minGain: 3}", "minGain: 3", "at: Binding, minGain: 3"),
        (
            "{placement: {at: Binding}, variables: [{name: a, expression: request.userInfo.uid}]}",
            "at: Binding",
            "at: Admission",
        ),
        (
            "{placement: {preemption: On},filters: [{name: f, expression: has(request.userInfo)}]}",
            "preemption: On",
            "",
        ),
    ],
)
def test_a_spec_that_follows_its_hint_has_no_mistake(written: str, old: str, new: str) -> None:
    ((_, hint),) = _mistakes(written)
    assert hint
    assert old in written
    policy(written.replace(old, new))


def test_what_is_known_at_binding_may_be_read_there() -> None:
    compiled = policy(
        """
        placement: {at: Binding}
        filters: [{name: a, expression: "request.namespace != '' && object.spec.x == node.name"}]
        """
    )
    assert compiled.placement.at is PlacementAt.BINDING


@pytest.mark.parametrize(
    ("placement", "reasons"),
    [
        ("{}", ()),
        ("{releaseInOrder: true}", ("order",)),
        ("{preemption: DryRun}", ("preemption",)),
        ("{at: Binding, preemption: On, releaseInOrder: true}", ("order", "preemption")),
    ],
)
def test_an_order_and_preemption_have_pods_held(placement: str, reasons: tuple[str, ...]) -> None:
    assert policy(f"placement: {placement}").placement.hold_reasons == reasons


def test_a_plugin_is_refused_where_it_does_nothing() -> None:
    ((message, hint),) = _mistakes("filters: [{plugin: ResourceLimitAware}]")
    assert message == "plugin `ResourceLimitAware` does not filter"
    assert "LimitAware" in hint


def test_the_types_of_variables_are_known_to_what_reads_them() -> None:
    ((message, _),) = _mistakes(
        """
        variables: [{name: a, expression: "'text'"}]
        filters: [{name: f, expression: variables.a && true}]
        """
    )
    assert message == "expected `bool`, not `string`"


def test_a_variable_with_a_mistake_is_not_a_mistake_where_it_is_read() -> None:
    mistakes = _mistakes(
        """
        variables: [{name: a, expression: 1 +}]
        filters: [{name: f, expression: variables.a}]
        """
    )
    assert len(mistakes) == 1


def test_parts_evaluated_node_by_node_are_reported_at_load() -> None:
    fast = policy("filters: [{name: f, expression: node.labels.zone == pod.labels.zone}]")
    assert fast.slow_parts == ()
    slow = policy(
        """
        scores:
        - name: s
          expression: "'size(' + node.name + pod.name == '' ? 1 : 0"
        """
    )
    (told,) = slow.slow_parts
    assert told.part == "s"
    assert "ms for each pod and 5,000 nodes" in told.message
