"""The kinds of policies as authors write them, shaped like custom resources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel

from engine.documents import mistake, several_mistakes, template_hint
from engine.errors import did_you_mean
from engine.model import api, selectors
from engine.model.elastic_quota import EvictionMode
from engine.model.policy_resource import (
    DEFAULT_GROUP_LABELS,
    WISH_WEIGHTS,
    DynamicFilters,
    PlacementAt,
    PlacementOptions,
    PolicyKind,
    WhenNoneFits,
    policy_name,
)
from engine.model.well_known import NAMESPACE_NAME_LABEL
from engine.plugins import PLUGINS, UPSTREAM_NAMES, instead_of

# The parts of a policy: the pods that it selects, its variables, filters and scores.
#
# The models define the keys and the type of each value. Values that cannot be checked by themselves
# (expressions, the args of a plugin) are checked in `engine.policy.compile`.


MOST_RULES: Final = 64
"""Of one sort in one policy; Kubernetes allows as many matchConditions."""


class Model(BaseModel):
    """The common settings: camelCase keys, unknown keys forbidden, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        defer_build=True,  # not all commands read policies, and few those of one namespace
    )


class Named(Model):
    """Anything with a name."""

    name: str


_N = TypeVar("_N", bound="Named | Rule")


def unique(items: tuple[_N, ...]) -> tuple[_N, ...]:
    """Reject two items of one name."""
    counts = Counter(item.name for item in items)
    twice = [name for name, count in counts.items() if count > 1]
    names = [item.name for item in items]
    last = {name: index for index, name in enumerate(names)}
    if twice:
        raise several_mistakes(
            ((last[name], "name"), f"name `{name}` is used twice", (names.index(name), "name"))
            for name in twice
        )
    return items


def _matching(pattern: str, words: str) -> AfterValidator:
    """Return the validator of a text that matches a pattern, which is put in words."""

    def checked(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise mistake(f"`{text}` is no name", template_hint(text) or words)
        return text

    return AfterValidator(checked)


_OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_RULE_NAME: Final = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_IDENTIFIER: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"

ObjectName = Annotated[
    str,
    Field(
        max_length=253,
        description="Lower-case letters, digits, `-` and `.`.",
        json_schema_extra={"pattern": _OBJECT_NAME},
    ),
    _matching(_OBJECT_NAME, "lower-case letters, digits, `-` and `.`, no sign first or last"),
]
RuleName = Annotated[
    str,
    Field(
        max_length=63,
        description="Letters, digits, `-`, `_` and `.`; shown in reasons and errors.",
        json_schema_extra={"pattern": _RULE_NAME},
    ),
    _matching(_RULE_NAME, "letters, digits, `-`, `_` and `.`, no sign first or last"),
]
VariableName = Annotated[
    str,
    Field(
        max_length=63,
        description="An identifier: the value is `variables.NAME` in expressions.",
        json_schema_extra={"pattern": _IDENTIFIER},
    ),
    _matching(_IDENTIFIER, "letters, digits and `_`, no digit first"),
]
Expression = Annotated[str, Field(min_length=1, description="A CEL expression.")]


class OnFilterError(StrEnum):
    """The fate of a node that a filter cannot be evaluated for."""

    REJECT_NODE = "RejectNode"  # it is rejected
    IGNORE_RULE = "IgnoreRule"  # it passes


class OnScoreError(StrEnum):
    """The consequence when a score cannot be evaluated for a candidate."""

    ZERO_SCORE = "ZeroScore"  # that node gets 0 from it, the others their scores
    IGNORE_RULE = "IgnoreRule"  # no node gets points from it


_BETWEEN_VALUES: Final = re.compile(r"\s*[,;|]\s*|\s+")
_WITH_VALUES: Final = {"Exists": "In", "DoesNotExist": "NotIn"}


def _joined_values(text: str) -> str:
    """Return several label values in one string as a YAML list has them, "" for anything else."""
    values = _BETWEEN_VALUES.split(text.strip())
    if len(values) > 1 and all(each and selectors.is_label_value(each) for each in values):
        return ", ".join(values)
    return ""


class LabelRequirement(Model):
    """One requirement of a label selector."""

    other_words: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "operator": {
            **dict.fromkeys(("=", "==", "equal", "equals", "is"), "In"),
            **dict.fromkeys(("!=", "isnot", "not", "notequal", "notequals"), "NotIn"),
            **dict.fromkeys(("exist", "present"), "Exists"),
            **dict.fromkeys(("absent", "missing", "notexists"), "DoesNotExist"),
            **dict.fromkeys(
                ("gt", "lt", "gte", "lte"),
                "selectors compare no numbers: write a match condition, such as"
                " `int(pod.labels[?'a'].orValue('0')) > 5`",
            ),
        }
    }
    """Values by key, as they may be called elsewhere; or what to write instead."""

    key: Annotated[str, Field(description="The label's key.")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        Field(description="How the label is compared with `values`."),
    ]
    values: Annotated[
        tuple[str, ...], Field(description="For `In` and `NotIn`; empty for the others.")
    ] = ()


class LabelSelector(Model):
    """A Kubernetes label selector: all parts must hold, an empty one matches everything."""

    match_labels: Annotated[
        dict[str, str], Field(description="Labels that must have exactly these values.")
    ] = {}
    match_expressions: Annotated[
        tuple[LabelRequirement, ...], Field(description="Further requirements.")
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _has_labels_in_their_place(cls, written: object) -> object:
        if isinstance(written, list) and all(isinstance(each, str) for each in written):
            named = (
                f"{{ key: {NAMESPACE_NAME_LABEL}, operator: In, values: [{', '.join(written)}] }}"
            )
            hint = f"for namespaces write `namespaceSelector: {{ matchExpressions: [{named}] }}`"
            raise mistake("expected a mapping of keys to values", hint)
        if isinstance(written, dict):
            keys = {field.alias or name for name, field in cls.model_fields.items()}
            labels = written.get("matchLabels")
            for key, value in labels.items() if isinstance(labels, dict) else ():
                if isinstance(value, list):
                    part = f"{{ key: {key}, operator: In, values: [{', '.join(map(str, value))}] }}"
                    hint = f"for any of several write `matchExpressions: [{part}]`"
                    raise several_mistakes([(("matchLabels", key), "expected a string")], hint)
            stray = {
                key: value
                for key, value in written.items()
                if isinstance(value, str) and key not in keys and not did_you_mean(key, keys)
            }
            if stray:
                labels = ", ".join(f"{key}: {value}" for key, value in stray.items())
                mistakes = [((key,), f"`{key}` is not a part of a label selector") for key in stray]
                raise several_mistakes(mistakes, f"matchLabels: {{ {labels} }}")
        return written

    @model_validator(mode="after")
    def _is_a_selector(self) -> Self:
        _, mistakes = self._parsed()
        if mistakes:
            found = [(each.path, each.message) for each in mistakes]
            hint = template_hint(" ".join(text for _, text in found))
            raise several_mistakes(
                found, hint or self._hint_for_values_of_none() or self._hint_for_joined_values()
            )
        return self

    def _hint_for_values_of_none(self) -> str:
        """Return the remedy for values of an operator that takes none, "" where there are none."""
        for part in self.match_expressions:
            if part.values and part.operator in _WITH_VALUES:
                operator = _WITH_VALUES[part.operator]
                return f"for these values of `{part.key}` write `operator: {operator}`"
        return ""

    def _hint_for_joined_values(self) -> str:
        """Return the remedy for several values in one string, "" where there are none."""
        for value in (each for part in self.match_expressions for each in part.values):
            if values := _joined_values(value):
                return f"write each value by itself: `values: [{values}]`"
        for key, value in self.match_labels.items():
            if values := _joined_values(value):
                expression = f"{{ key: {key}, operator: In, values: [{values}] }}"
                return f"for any of several write `matchExpressions: [{expression}]`"
        return ""

    def parsed(self) -> selectors.LabelSelector:
        """Return the selector as the engine applies it."""
        return self._parsed()[0]

    def _parsed(self) -> tuple[selectors.LabelSelector, selectors.Mistakes]:
        wire = msgspec.convert(self.model_dump(by_alias=True), api.LabelSelector)
        return selectors.parse_label_selector(wire)


class MatchCondition(Named):
    """A match condition, such as that of an admission webhook."""

    name: Annotated[RuleName, Field(description="Shown in the error if the condition fails.")]
    expression: Annotated[
        Expression,
        Field(description="CEL over `object`, `request`, `namespaceObject` and `pod`; a bool."),
    ]


_A_CONDITION: Final = "write a match condition, such as `!(pod.namespace in ['a', 'b'])`"


class Match(Model):
    """The pods that a policy applies to; all parts must hold."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("all", "any", "resources"),
            "for namespaces write `namespaceSelector: { matchExpressions:"
            f" [{{ key: {NAMESPACE_NAME_LABEL}, operator: In, values: [a, b] }}] }}`, for labels of"
            " pods `objectSelector`",
        ),
        **dict.fromkeys(("exclude", "excludedNamespaces"), _A_CONDITION),
        **dict.fromkeys(
            ("labels", "labelSelector", "podSelector", "selector"),
            "write `objectSelector: { matchLabels: .. }`",
        ),
        **dict.fromkeys(
            ("namespace", "namespaces"),
            "write `namespaceSelector`, or a match condition such as `pod.namespace == 'a'`",
        ),
    }
    """Hints for keys of other kinds of policies."""

    namespace_selector: Annotated[
        LabelSelector, Field(description="Selects by the labels of the pod's namespace.")
    ] = LabelSelector()
    object_selector: Annotated[
        LabelSelector, Field(description="Selects by the labels of the pod.")
    ] = LabelSelector()
    match_conditions: Annotated[
        tuple[MatchCondition, ...],
        Field(max_length=MOST_RULES, description="CEL conditions that must all be true."),
        AfterValidator(unique),
    ] = ()


class Variable(Named):
    """A value computed at most once per pod, and only when something reads it."""

    name: VariableName
    expression: Annotated[
        Expression,
        Field(description="CEL over the pod; may read earlier variables, but no node."),
    ]


class Rule(Model):
    """The common part of filters and scores: a plugin with its args, or an expression."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("cel", "condition", "expr", "rule", "validate", "when"), "did you mean `expression`?"
        ),
        **dict.fromkeys(("points", "score", "value"), "the points are what `expression` comes to"),
    } | {
        field.alias or name: f"write it below `args`: `{field.alias or name}` is an arg of a plugin"
        for plugin in PLUGINS.values()
        for name, field in plugin.args.model_fields.items()
    }

    rule_name: Annotated[
        RuleName | None,
        Field(alias="name", description="The name of the plugin by default."),
    ] = None
    plugin: Annotated[
        str | None, Field(description="The name of a plugin. Give either this or `expression`.")
    ] = None
    args: Annotated[dict[str, Any] | None, Field(description="The args of the plugin.")] = None
    expression: Annotated[
        Expression | None, Field(description="CEL. Give either this or `plugin`.")
    ] = None

    @property
    def name(self) -> str:
        """The given name, or that of the plugin."""
        return self.rule_name or self.plugin or ""

    @model_validator(mode="before")
    @classmethod
    def _accept_scheduler_configuration(cls, written: object) -> object:
        """Accept an entry of a scheduler's `pluginConfig`, which names its plugin by `name`."""
        if isinstance(written, dict) and (plugin := named_plugin(written)):
            return {**written, "plugin": plugin}
        return written

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.plugin is None) == (self.expression is None):
            is_entry = self.plugin is None and self.args is not None
            hint = ""
            if is_entry:
                known = instead_of(str(self.rule_name), PLUGINS)
                hint = f"there is no plugin `{self.rule_name}`" + (f": {known}" if known else "")
            raise mistake("give either `plugin` or `expression`", hint)
        if self.expression is not None and self.rule_name is None:
            raise mistake("a rule with an `expression` needs a `name`")
        if self.expression is not None and self.args is not None:
            raise mistake("`args` belong to a `plugin`")
        return self


def named_plugin(rule: Mapping[str, object]) -> str:
    """Return the plugin that a rule is to run, by our name for it; "" for an expression."""
    name = rule.get("plugin" if "plugin" in rule or "expression" in rule else "name")
    if not isinstance(name, str):
        return ""
    ours = UPSTREAM_NAMES.get(name, name)
    return ours if "plugin" in rule or ours in PLUGINS else ""


class Filter(Rule):
    """Rejects nodes that cannot take the pod; an expression is true for those that can."""

    message: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Why a node is rejected, for a rule with an expression.",
        ),
    ] = None
    on_error: Annotated[
        OnFilterError,
        Field(
            description="If the rule fails for a node: `RejectNode` rejects the node,"
            " `IgnoreRule` lets it pass."
        ),
    ] = OnFilterError.REJECT_NODE

    @model_validator(mode="after")
    def _message_explains_an_expression(self) -> Self:
        if self.message is not None and self.plugin is not None:
            raise mistake("a plugin gives its own reasons, drop `message`")
        return self


_MOST_WEIGHT: Final = 100


def _weight(weight: object, info: ValidationInfo) -> object:
    """Refuse a weight below 1, with what does what it is to do."""
    expression = info.data.get("expression")
    if weight == 0 and isinstance(weight, int) and not isinstance(weight, bool):
        raise mistake("must be at least 1", "to switch the score off, drop it")
    if isinstance(weight, float) and 0 < weight < 1:
        raise mistake("expected a whole number", "weights are relative: for half of 2 write 1")
    if isinstance(weight, int) and weight < 0 and isinstance(expression, str):
        text = expression.strip()
        shown = text if "\n" not in text else ".."
        raise mistake(
            "must be at least 1",
            f"for a penalty write `weight: {min(-weight, _MOST_WEIGHT)}`, and turn the expression"
            f" round: `-({shown})`",
        )
    return weight


class Score(Rule):
    """Ranks the nodes that are left; an expression is a number, higher is better."""

    weight: Annotated[
        int,
        Field(strict=True, ge=1, le=_MOST_WEIGHT, description="Factor of its 0..100 points."),
        BeforeValidator(_weight),
    ] = 1
    on_error: Annotated[
        OnScoreError,
        Field(
            description="If the rule fails for a node: `ZeroScore` gives the node 0 points,"
            " `IgnoreRule` gives no node any points."
        ),
    ] = OnScoreError.ZERO_SCORE


_SERVER_KEYS: Final = frozenset({"status"})
_SERVER_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""What stands in a policy that the API server has printed, and is none of its author's."""


def _without(written: object, keys: frozenset[str]) -> object:
    if not isinstance(written, dict) or keys.isdisjoint(written):
        return written
    return {key: value for key, value in written.items() if key not in keys}


class Mode(StrEnum):
    """The effect of a policy."""

    ENFORCE = "Enforce"  # decides
    AUDIT = "Audit"  # its decision is recorded, without effect


def _points(written: object) -> object:
    """Refuse a fraction of all points, with the points that it is."""
    if isinstance(written, float):
        points = round(written * _ALL_POINTS if 0 < written < 1 else written)
        raise mistake("expected a whole number of points of 100", f"write {points}")
    return written


_ALL_POINTS: Final = 100


_OFF: Final = "Off"
_RELEASE: Final = "Release"
_WISH_WEIGHTS: Final = dict(WISH_WEIGHTS)
_Weight = Annotated[int, Field(strict=True, ge=0, le=100)]


class SchedulerScores(Model):
    """The weights of the scheduler's scores of what a pod asks for; 0 for none."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        name: f"a score of its own: write `- plugin: {name}` below `spec.scores`"
        for name, plugin in PLUGINS.items()
        if plugin.score is not None
    }
    """Hints for scores that are no wishes of pods."""

    taint_toleration: Annotated[
        _Weight,
        Field(
            alias="TaintToleration",
            description="Prefers nodes without soft taints that the pod does not tolerate.",
        ),
    ] = _WISH_WEIGHTS["TaintToleration"]
    node_affinity: Annotated[
        _Weight,
        Field(
            alias="NodeAffinity", description="Prefers the nodes that the pod prefers by labels."
        ),
    ] = _WISH_WEIGHTS["NodeAffinity"]
    pod_topology_spread: Annotated[
        _Weight,
        Field(
            alias="PodTopologySpread",
            description="Prefers nodes and zones with fewer pods like it, by its `ScheduleAnyway`"
            " constraints, or by the scheduler's defaults for pods of a controller.",
        ),
    ] = _WISH_WEIGHTS["PodTopologySpread"]
    inter_pod_affinity: Annotated[
        _Weight,
        Field(
            alias="InterPodAffinity",
            description="Prefers nodes near pods that the pod prefers, or that prefer it.",
        ),
    ] = _WISH_WEIGHTS["InterPodAffinity"]

    @property
    def weights(self) -> tuple[tuple[str, int], ...]:
        """The weight of each plugin."""
        return tuple(self.model_dump(by_alias=True).items())


def _by_plugin(written: object) -> object:
    """Return the weights that `Off` stands for; YAML 1.1 reads it as false."""
    if written == _OFF or written is False:
        return dict.fromkeys(_WISH_WEIGHTS, 0)
    if not isinstance(written, dict | SchedulerScores):
        is_off = isinstance(written, str) and written.casefold() in {"off", "none", "no"}
        hint = "write `Off`" if is_off else "write `Off`, or such as `TaintToleration: 3`"
        raise mistake("expected weights by plugin", hint)
    return written


def _switch(written: object) -> object:
    """Return what a bool stands for: YAML 1.1 reads `On` and `Off` as true and false."""
    if isinstance(written, bool):
        return EvictionMode.ON if written else EvictionMode.OFF
    return written


def _moment(written: object) -> object:
    """Return a moment as it is written, but for one that there is no longer."""
    if written == _RELEASE:
        raise mistake(
            "pods are no longer decided at their release",
            "write `at: Binding`; `releaseInOrder: true` or `preemption` holds them before",
        )
    return written


def _label_key(text: str) -> str:
    if not selectors.is_label_key(text):
        key = text.partition("=")[0].partition(":")[0].strip()
        hint = f"write the key alone: {key}" if selectors.is_label_key(key) else ""
        raise mistake(f"`{text}` is not a label key", template_hint(text) or hint)
    return text


def _or_off(schema: dict[str, Any]) -> None:
    weights = {key: schema.pop(key) for key in ("$ref", "allOf") if key in schema}
    schema["anyOf"] = [weights, {"const": _OFF, "type": "string"}]


def _without_marks(written: object) -> object:
    """Refuse the values of earlier versions, by which filters were marked on nodes."""
    if isinstance(written, str) and written in {"Marked", "MarkedRequired"}:
        raise mistake(
            f"`{written}` is not {' or '.join(f'`{known}`' for known in DynamicFilters)}",
            "decide `at: Binding`: filters are then judged as the pod is bound, and no node needs"
            " a mark",
        )
    return written


class Placement(Model):
    """The form of the decision on the pod."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "enforcement": "write `dynamicFilters: Required`, or `at: Binding`",
        "hold": "write `releaseInOrder: true`, or `preemption`",
        "when": "write `at: Admission` or `at: Binding`",
    }
    other_words: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "at": {
            **dict.fromkeys(("create", "creation", "admit"), PlacementAt.ADMISSION),
            **dict.fromkeys(("bound", "schedule", "scheduling"), PlacementAt.BINDING),
        },
        "dynamicFilters": {
            **dict.fromkeys(("hard", "true", "enforce", "must"), DynamicFilters.REQUIRED),
            **dict.fromkeys(("soft", "false", "advise", "ignore"), DynamicFilters.PREFERRED),
        },
        "preemption": {
            **dict.fromkeys(("disabled", "false", "never", "no", "none"), EvictionMode.OFF),
            **dict.fromkeys(("always", "enabled", "true", "yes"), EvictionMode.ON),
        },
        "whenNoneFits": {
            **dict.fromkeys(("admit", "ignore", "pass", "schedule"), WhenNoneFits.ALLOW),
            **dict.fromkeys(("block", "fail", "reject", "refuse"), WhenNoneFits.DENY),
            **dict.fromkeys(("hold", "pending", "queue", "retry"), WhenNoneFits.WAIT),
        },
    }
    """Values by key, as they may be called elsewhere."""

    at: Annotated[
        PlacementAt,
        Field(
            description="`Admission` advises the scheduler when the pod is created. `Binding`"
            " decides when the scheduler binds the pod: its node is replaced if a"
            " filter rejects it, or if another node is better by `minGain`."
        ),
        BeforeValidator(_moment),
    ] = PlacementAt.ADMISSION
    dynamic_filters: Annotated[
        DynamicFilters,
        BeforeValidator(_without_marks),
        Field(
            description="What advice does with filters on changing state. `Preferred`: nodes that"
            " they reject are not preferred. `Required`: these nodes are also"
            " excluded with `NotIn`. `at: Binding` enforces such filters without"
            " either."
        ),
    ] = DynamicFilters.PREFERRED
    when_none_fits: Annotated[
        WhenNoneFits,
        Field(
            description="What happens if the filters leave no node that the scheduler could take."
            " `Allow`: the pod passes, with what filters say of labels. `Deny`: it is"
            " denied. `Wait`, with `at: Binding`: it stays pending, and the scheduler"
            " tries it again."
        ),
    ] = WhenNoneFits.ALLOW
    release_in_order: Annotated[
        bool,
        Field(
            strict=True,
            description="Holds the pod with a scheduling gate until the pods before it in the"
            " order of `--queue-sort` are bound, or have no node. Needs `stowplan"
            " serve --hold`.",
        ),
    ] = False
    preemption: Annotated[
        EvictionMode,
        BeforeValidator(_switch),
        Field(
            description="Holds the pod with a scheduling gate. If no node takes it, `On` evicts"
            " pods of lower priority for it, as far as budgets, gangs, quotas and"
            " PriorityClasses allow it; `DryRun` reports them in an Event and releases"
            " the pod. Needs `stowplan serve --hold --preemption`."
        ),
    ] = EvictionMode.OFF
    min_gain: Annotated[
        int,
        Field(
            strict=True,
            ge=0,
            le=100,
            description="How many points of 100, over all scores by weight, another node must be"
            " better than the scheduler's for the pod to be moved at its binding.",
        ),
        BeforeValidator(_points),
    ] = 1
    max_nodes: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=256,
            description="Maximum number of node names written; nodes further down the ranking are"
            " never named.",
        ),
    ] = 64
    group_labels: Annotated[
        tuple[Annotated[str, Field(min_length=1), AfterValidator(_label_key)], ...],
        Field(
            max_length=32,
            description="Node labels that may replace node names, if one describes the set of"
            " nodes exactly.",
        ),
    ] = DEFAULT_GROUP_LABELS
    scheduler_scores: Annotated[
        SchedulerScores,
        BeforeValidator(_by_plugin),
        Field(
            description="Weights of the scheduler's scores of what the pod asks for, next to the"
            " `scores` of policies, or `Off`. A score of a policy by the same plugin"
            " replaces the default one.",
            json_schema_extra=_or_off,
        ),
    ] = SchedulerScores()

    @property
    def options(self) -> PlacementOptions:
        """The same, as decisions read it."""
        return PlacementOptions(**dict(self) | {"scheduler_scores": self.scheduler_scores.weights})

    @model_validator(mode="after")
    def _a_pod_waits_or_is_denied_at_one_moment(self) -> Self:
        at_binding = self.at is PlacementAt.BINDING
        if at_binding and self.when_none_fits is WhenNoneFits.DENY:
            raise several_mistakes(
                [(("whenNoneFits",), "a pod that is decided at binding cannot be denied any more")],
                hint="write `Wait`, which keeps it pending, or decide `at: Admission`",
            )
        if not at_binding and self.when_none_fits is WhenNoneFits.WAIT:
            raise several_mistakes(
                [(("whenNoneFits",), "only a pod that is decided at binding can be let wait")],
                hint="decide `at: Binding`, or drop `whenNoneFits`",
            )
        if not at_binding and "min_gain" in self.model_fields_set:
            raise several_mistakes(
                [(("minGain",), "only a pod that is decided at binding is moved")],
                hint="decide `at: Binding`, or drop `minGain`",
            )
        return self


class Metadata(Model):
    """The metadata of a policy."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "namespace": f"a {PolicyKind.CLUSTER} is for the whole cluster: drop it, or for the pods "
        f"of one namespace write `kind: {PolicyKind.NAMESPACED}`"
    }
    """Hints for keys that belong to other kinds."""

    name: Annotated[ObjectName, Field(description="Unique among all policies.")]
    labels: Annotated[dict[str, str], Field(description="Free to use.")] = {}
    annotations: Annotated[dict[str, str], Field(description="Free to use.")] = {}

    @model_validator(mode="before")
    @classmethod
    def _skip_what_the_api_server_adds(cls, written: object) -> object:
        return _without(written, _SERVER_METADATA)


class NamespacedMetadata(Metadata):
    """The metadata of a policy for one namespace."""

    namespace: Annotated[
        ObjectName, Field(description="The policy applies only to pods of this namespace.")
    ]


class Spec(Model):
    """The spec of a policy."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "audit": "write `mode: Audit`",
        "auditAnnotations": "the decision is in annotations of the pod: drop it",
        "description": "write it as a comment, or in `metadata.annotations`",
        "dryRun": "write `mode: Audit`",
        "enabled": "write `mode: Enforce` or `mode: Audit`",
        "quota": "a quota is an object of its own: an `ElasticQuota` in the namespace",
        **dict.fromkeys(
            ("args", "expression", "message", "onError", "plugin"),
            "indent it below the rule that it belongs to",
        ),
        "exclude": _A_CONDITION,
        "weights": "write `weight` in each score",
        "failurePolicy": "each filter and score has `onError`; by default a filter that fails"
        " rejects the node: drop it",
        "matchConstraints": "only pods that are being created are placed: drop it",
        "matchLabels": "write it below `match.objectSelector`",
        "namespaces": "ask for `kubernetes.io/metadata.name` in `match.namespaceSelector`",
        "nodeSelector": "write a filter, such as `node.labels[?'pool'].orValue('') == 'a'`",
        "paramKind": "a policy has no parameters: what rules share are its `variables`",
        "rules": "write them as `filters` or `scores`",
        "selector": "write `match.objectSelector`",
        "tolerations": "the scheduler heeds taints itself: drop it",
        "validationActions": "write `mode: Enforce` or `mode: Audit`",
        "validations": "write them as `filters`",
    }
    """Hints for keys of other kinds of policies."""
    other_words: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "mode": {
            **dict.fromkeys(("deny", "enabled", "enforced", "on"), Mode.ENFORCE),
            **dict.fromkeys(("dryrun", "monitor", "permissive", "report", "warn"), Mode.AUDIT),
        }
    }
    """Values by key, as policies of other kinds call them."""

    priority: Annotated[
        int,
        Field(
            strict=True,
            ge=-(2**31),
            le=2**31 - 1,
            description="The policy with the highest priority decides `placement`; ties go by"
            " name.",
        ),
    ] = 0
    mode: Annotated[
        Mode,
        Field(description="`Enforce` decides, `Audit` records what it would decide."),
    ] = Mode.ENFORCE
    match: Annotated[Match, Field(description="The pods it applies to; all pods by default.")] = (
        Match()
    )
    variables: Annotated[
        tuple[Variable, ...],
        Field(max_length=MOST_RULES, description="Values that several rules share."),
        AfterValidator(unique),
    ] = ()
    filters: Annotated[
        tuple[Filter, ...],
        Field(max_length=MOST_RULES, description="A node must pass all filters."),
        AfterValidator(unique),
    ] = ()
    scores: Annotated[
        tuple[Score, ...],
        Field(max_length=MOST_RULES, description="Points are added up by weight."),
        AfterValidator(unique),
    ] = ()
    placement: Annotated[
        Placement, Field(description="How binding the decision is, and when it is made.")
    ] = Placement()


class NamespacedSpec(Spec):
    """The spec of a policy for one namespace, which cannot reach beyond it."""

    @model_validator(mode="after")
    def _reaches_no_other_namespace(self) -> Self:
        mistakes = [
            (path, message)
            for is_given, path, message in (
                (
                    "namespace_selector" in self.match.model_fields_set,
                    ("match", "namespaceSelector"),
                    "it applies to pods of its own namespace alone",
                ),
                (
                    self.placement.preemption is not EvictionMode.OFF,
                    ("placement", "preemption"),
                    "it may not evict pods",
                ),
            )
            if is_given
        ]
        if mistakes:
            raise several_mistakes(mistakes, f"drop it, or write a `{PolicyKind.CLUSTER}`")
        return self


class _Policy(Model):
    """The common part of both kinds."""

    api_version: Annotated[Literal["stowplan.dev/v1alpha1"], Field(description="Always this.")]

    @model_validator(mode="before")
    @classmethod
    def _skip_what_the_api_server_adds(cls, written: object) -> object:
        return _without(written, _SERVER_KEYS)


class PlacementPolicy(_Policy):
    """A policy for pods of all namespaces."""

    kind: Annotated[Literal["PlacementPolicy"], Field(description="Always this.")]
    metadata: Annotated[Metadata, Field(description="Name, labels and annotations.")]
    spec: Annotated[Spec, Field(description="The pods it applies to, and its rules.")]

    @property
    def namespace(self) -> str:
        """That of the pods it applies to, "" for all."""
        return ""

    @property
    def name(self) -> str:
        """The name by which it is known."""
        return self.metadata.name


class NamespacedPlacementPolicy(_Policy):
    """A policy for pods of its own namespace; ranks after every PlacementPolicy."""

    kind: Annotated[Literal["NamespacedPlacementPolicy"], Field(description="Always this.")]
    metadata: Annotated[
        NamespacedMetadata, Field(description="Name, namespace, labels and annotations.")
    ]
    spec: Annotated[NamespacedSpec, Field(description="The pods it applies to, and its rules.")]

    @property
    def namespace(self) -> str:
        """That of the pods it applies to."""
        return self.metadata.namespace

    @property
    def name(self) -> str:
        """The name by which it is known."""
        return policy_name(self.metadata.namespace, self.metadata.name)


MODELS: Final[Mapping[str, type[PlacementPolicy | NamespacedPlacementPolicy]]] = {
    PolicyKind.CLUSTER.value: PlacementPolicy,
    PolicyKind.NAMESPACED.value: NamespacedPlacementPolicy,
}
"""By `kind`."""
