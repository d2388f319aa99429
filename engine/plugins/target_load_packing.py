"""TargetLoadPacking: fill nodes up to a target cpu utilization, and spread pods beyond it.

Source: scheduler-plugins, pkg/trimaran/targetloadpacking. The expected utilization of a node is its
measurement, plus the predicted usage of pods that no measurement includes yet, plus that of the
incoming pod. `engine.plugins.lib.trimaran` says which measurement is used.

Differences from upstream:

- **Time of pods**: a pod counts from the time of its PodScheduled condition, else from the time
  that the view saw it there. Upstream uses the time that it sees the binding.
- **`targetUtilization`** beyond 100 is refused. Upstream's scores leave the scale.
- **Source of measurements**: `metricProvider` and `watcherAddress` are checked and not used: usage
  comes from the sources of the cluster view.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, ValidationInfo

from engine.documents import warn
from engine.model.pod_shape import PodShape
from engine.model.quantity import CPU, INT64_MIN, base_units
from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit
from engine.model.time import SECOND
from engine.model.usage import NodeUsage
from engine.plugins.base import MAX_SCORE, Cycle, Plugin, Score, Scores
from engine.plugins.lib.args import Quantities, WholePercent
from engine.plugins.lib.arithmetic import FloatColumn, rounded
from engine.plugins.lib.reporting import report_age
from engine.plugins.lib.trimaran import TrimaranArgs, capacity, is_recent, measured_load
from engine.view import LOAD_DOMAINS, IntColumn, PodEntry, capped

_DEFAULT_TARGET = 40
_TOO_LITTLE: Final = 1  # percent: an idle node uses more
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_GREATEST = 2.0**52
"""More millicores than any pod uses, and few enough that a float64 holds them exactly."""

_Text: TypeAlias = Annotated[str, Field(strict=True)]


def _target(percent: int, info: ValidationInfo) -> int:
    if 0 < percent <= _TOO_LITTLE:
        warn(info, f"`targetUtilization` is {percent} %", f"for {percent}00 % write {percent}00")
    if percent > 0:
        return percent
    warn(info, f"`targetUtilization` {percent} counts as {_DEFAULT_TARGET}")
    return _DEFAULT_TARGET


def _number(text: str) -> str:
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(f"unable to parse `defaultRequestsMultiplier`: `{text}` is not a number")
    return text


class TargetLoadPackingArgs(TrimaranArgs):
    """TargetLoadPackingArgs, with upstream's defaults.

    Attributes:
        target_utilization: cpu utilization in percent up to which nodes are filled; 0 or less means
            40. Beyond 100, where upstream's scores leave the scale, is refused.
        default_requests: quantities by resource name, of which only cpu is read: what a container
            is predicted to use that has neither limit nor request.
        default_requests_multiplier: what the request of a container without a limit is multiplied
            by, a number as a string.
    """

    target_utilization: Annotated[
        WholePercent, Field(ge=INT64_MIN, le=MAX_SCORE), AfterValidator(_target)
    ] = _DEFAULT_TARGET
    default_requests: Quantities = Field(default={CPU: "1000m"})
    default_requests_multiplier: Annotated[_Text, AfterValidator(_number)] = "1.5"

    @property
    def prediction(self) -> CpuPrediction:
        """The prediction of pod usage by these arguments."""
        default = base_units(CPU, self.default_requests.get(CPU, 0))
        return CpuPrediction(default, float(self.default_requests_multiplier))


@dataclass(frozen=True, slots=True)
class CpuPrediction:
    """The predicted usage of pods, summed over those that no measurement includes."""

    default: int  # of a container with neither limit nor request, millicores
    multiplier: float  # of the request of one without a limit
    width: ClassVar[int] = 1
    reads_reports: ClassVar[bool] = True

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int]:
        """Return the prediction for a pod that a report cannot know, else nothing.

        A pod is known once it was there for one interval before the report, in whole seconds.
        """
        if report is None or pod.shape.reserve_pod:
            return (0,)
        known_until = (report.update_time or 0) // SECOND - report.report_interval_seconds
        is_missing = pod.assumed or pod.assigned_at // SECOND > known_until
        return (self.of(pod.shape) if is_missing else 0,)

    def of(self, shape: PodShape) -> int:
        """Return what a pod is predicted to use, in millicores."""
        containers = (self._of_container(*cpu) for cpu in shape.container_cpu)
        return capped(sum(containers) + shape.overhead_cpu)

    def _of_container(self, request: int | None, limit: int | None) -> int:
        if limit is not None:
            return limit
        if request is None:
            return self.default
        expected = np.clip(request * self.multiplier, -_GREATEST, _GREATEST)
        return int(rounded(np.array([expected]))[0])


class TargetLoadPackingScore(Score):
    """Prefers the fullest nodes below the target, then the emptiest above it."""

    def __init__(self, args: TargetLoadPackingArgs) -> None:
        self._target = float(args.target_utilization)
        self._prediction = args.prediction

    def score(self, cycle: Cycle) -> Scores:
        """Return points by the expected utilisation, 0 where none was measured."""
        view = cycle.view
        load, whole = measured_load(view), capacity(view)[0]
        millicores = load.average[0] + self._prediction.of(cycle.pod.shape)
        millicores += view.pod_sums[self._prediction][0]
        percent = np.divide(100 * millicores, whole, out=np.zeros(len(view)), where=whole != 0)
        is_known = load.is_averaged[0] & is_recent(view, cycle.now)
        return Scores(np.where(is_known, points(percent, self._target), 0))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are on the scale unless a multiplier is negative."""
        return np.clip(scores, 0, MAX_SCORE)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        used, whole = measured_load(view).average[0, row], capacity(view)[0, row]
        new = view.pod_sums[self._prediction][0, row]
        return (
            RuleInput("cpu measured", round(used), Unit.MILLICORES, capacity=round(whole)),
            RuleInput("new pods", int(new), Unit.MILLICORES),
            RuleInput("this pod", self._prediction.of(cycle.pod.shape), Unit.MILLICORES),
            RuleInput("target", self._target, Unit.PERCENT),
            report_age(view, row, cycle.now),
        )


def points(percent: FloatColumn, target: float) -> IntColumn:
    """Return the points for an expected utilisation in percent.

    They rise from the target at 0 % to 100 at the target, drop to the target right behind it, and
    fall to 0 at 100 %, so that an idle node is preferred to each one that is above its target.
    """
    rising = (100 - target) * percent / target + target
    falling = target * (100 - percent) / (100 - target) if target < MAX_SCORE else 0 * percent
    value = np.where(percent > target, np.where(percent > MAX_SCORE, 0, falling), rising)
    return rounded(value)


PLUGIN = Plugin(
    args=TargetLoadPackingArgs,
    score=TargetLoadPackingScore,
    sum_profiles=lambda args: (args.prediction,),
    reads=LOAD_DOMAINS,
)
