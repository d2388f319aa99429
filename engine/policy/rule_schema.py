"""The parts of a policy: the pods that it selects, its variables, filters and scores.

The models define the keys and the type of each value. Values that cannot be checked by themselves
(expressions, the args of a plugin) are checked in `engine.policy.compile`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from engine.documents import mistake, several_mistakes, template_hint
from engine.errors import did_you_mean
from engine.model import api, selectors
from engine.plugins import PLUGINS, UPSTREAM_NAMES

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
    last = {item.name: index for index, item in enumerate(items)}
    if twice:
        raise several_mistakes(
            ((last[name], "name"), f"name `{name}` is used twice") for name in twice
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


class LabelRequirement(Model):
    """One requirement of a label selector."""

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
        if isinstance(written, dict):
            keys = {field.alias or name for name, field in cls.model_fields.items()}
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
            raise several_mistakes(found, template_hint(" ".join(text for _, text in found)))
        return self

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


class Match(Model):
    """The pods that a policy applies to; all parts must hold."""

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
            hint = f"there is no plugin `{self.rule_name}`" if is_entry else ""
            raise mistake("give either `plugin` or `expression`", hint)
        if self.expression is not None and self.rule_name is None:
            raise mistake("a rule with an `expression` needs a `name`")
        if self.expression is not None and self.args is not None:
            raise mistake("`args` belong to a `plugin`")
        return self


def named_plugin(rule: Mapping[str, object]) -> str:
    """Return the plugin that a rule is to run, by our name for it; "" for an expression.

    Args:
        rule: a filter or score as it was written, or an entry of a scheduler's `pluginConfig`.
    """
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


class Score(Rule):
    """Ranks the nodes that are left; an expression is a number, higher is better."""

    weight: Annotated[
        int,
        Field(strict=True, ge=1, le=100, description="Factor of its 0..100 points."),
    ] = 1
    on_error: Annotated[
        OnScoreError,
        Field(
            description="If the rule fails for a node: `ZeroScore` gives the node 0 points,"
            " `IgnoreRule` gives no node any points."
        ),
    ] = OnScoreError.ZERO_SCORE
