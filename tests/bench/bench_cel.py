"""How fast expressions are evaluated for all nodes of a cluster, and how fast by other engines.

Run as `python -m tests.bench.bench_cel [--nodes N]`. CPU time in microseconds for all nodes: with
nothing remembered, after 40 nodes have changed with a pod and the usage report of each, and warm;
and how many times longer the closure takes that is asked of one ready-made node after the other in
the same run. The engines of `tests.bench.cel_engines` are asked where they are installed: cel-go
of all nodes, the others of a sample.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import quantiles
from typing import TypeAlias

import numpy as np

from engine.cel import CelError, Program, compile_program
from engine.model.time import micros
from engine.pipeline import decide
from engine.policy import PolicySet, RuleContext
from engine.policy.environment import (
    NODE_FIELDS,
    POD_FIELDS,
    ExpressionScope,
    environment,
    node_value,
    pod_value,
    request_value,
)
from engine.policy.rules import FilterExpression, NodeExpression, ScoreExpression
from engine.view import ClusterView
from tests.bench.cel_engines import (
    CEL_GO,
    NAMES,
    Activation,
    Answer,
    Question,
    ask,
    is_installed,
    least_time,
)
from tests.bench.cel_rules import (
    ELSEWHERE,
    FILTERS,
    ON_PODS,
    REQUEST,
    SCORES,
    SLOW,
    policy_of_all,
)
from tests.bench.changing_cluster import ChangingCluster, forgetful
from tests.bench.texts import NOW

_NOW = micros(NOW)
_ROUNDS = 15
_SAMPLE = 50  # nodes that other engines are asked of
_DECISIONS = 200
_ENVIRONMENT = environment(ExpressionScope.RULES)

_Answers: TypeAlias = Mapping[str, Mapping[str, Answer]]
"""By engine, by expression."""


@dataclass(frozen=True, slots=True)
class _Ours:
    """What an expression takes for all nodes, in microseconds: by plan, and node by node."""

    cold: float
    changed: float
    warm: float
    scalar: float


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    nodes = parser.parse_args().nodes
    print(
        f"machine: {os.cpu_count()} cpus, {platform.machine()}, python {platform.python_version()},"
        f" numpy {np.__version__}"
    )
    cluster = ChangingCluster(nodes)
    print(f"{nodes:,} nodes, best of {_ROUNDS}       cold us  changed us    warm us  scalar/warm")
    ours: dict[str, _Ours] = {}
    for name, text in {**FILTERS, **SCORES, **SLOW}.items():
        rule = expression(name, text)
        times = _times([rule], cluster)
        scalar = _scalar_time(rule.program, cluster.state.view())
        ours[name] = _Ours(*times, scalar)
        print(f"  {name:24} {_told(times)} {scalar / times[-1]:12.0f}")
    rules = [expression(name, text) for name, text in {**FILTERS, **SCORES}.items()]
    print(f"  {f'all {len(rules)} rules':24} {_told(_times(rules, cluster))}")
    for engine in NAMES:
        if not is_installed(engine):
            print(f"{engine} is not installed, and left out")
    view = cluster.state.view()
    if is_installed(CEL_GO):
        _compare_with_go(ours, _activations(view))
    answers = _answers({**FILTERS, **SCORES}, _sample(view))
    _compare_on_nodes(ours, answers, nodes)
    _compare_on_the_pod()
    _compare_compiling(answers)
    _time_decisions(view, answers, nodes)


def _answers(
    expressions: Mapping[str, str], activations: list[Activation], engines: Iterable[str] = NAMES
) -> _Answers:
    """Return what other engines answer, and say where their values are not ours."""
    programs = {name: compile_program(text, _ENVIRONMENT) for name, text in expressions.items()}
    expected = {name: [_value(one, a) for a in activations] for name, one in programs.items()}
    answers = {
        engine: ask(engine, Question(_for_engine(engine, expressions), activations))
        for engine in engines
        if is_installed(engine)
    }
    for engine, found in answers.items():
        for name, answer in found.items():
            if answer.values != expected[name]:
                print(f"{engine} comes to other values than ours for: {name}")
    return answers


def _for_engine(engine: str, expressions: Mapping[str, str]) -> dict[str, str]:
    """Return expressions with functions that an engine has."""
    if engine == CEL_GO:
        return dict(expressions)
    return {name: ELSEWHERE.get(name, text) for name, text in expressions.items()}


def _compare_with_go(ours: Mapping[str, _Ours], activations: list[Activation]) -> None:
    """Print what the engine of Kubernetes takes for all nodes, and how many times what we do."""
    answers = _answers({**FILTERS, **SCORES, **SLOW}, activations, [CEL_GO])[CEL_GO]
    print(f"\n{CEL_GO}, asked of all nodes, converted before; us, and how many times what we take")
    _print_row("", [CEL_GO, "/ cold", "/ changed", "/ warm"])
    for name, own in ours.items():
        took = answers[name].ready * len(activations)
        ratios = [took / own.cold, took / own.changed, took / own.warm]
        _print_row(name, [f"{took:.0f}", *(f"{ratio:,.1f}" for ratio in ratios)])


def _compare_on_nodes(ours: Mapping[str, _Ours], answers: _Answers, nodes: int) -> None:
    """Print what each engine takes for all nodes.

    In favour of the other engines, the ratios are to their times without any conversion.
    """
    print(f"\nother engines: asked of {_SAMPLE} nodes, SCALED to {nodes:,}; us for all nodes")
    print("  fresh: converts node and pod; ready: both converted before; ratios are of ready")
    _print_heads(
        ("plan warm", "plan cold", "closures"), answers, ("fresh", "ready", "x closures", "x warm")
    )
    for name in (*FILTERS, *SCORES):
        own = ours[name]
        cells = [f"{own.warm:.1f}", f"{own.cold:.0f}", f"{own.scalar:.0f}"]
        for found in answers.values():
            fresh, ready = found[name].fresh * nodes, found[name].ready * nodes
            cells += [f"{fresh:.0f}", f"{ready:.0f}"]
            cells += [f"{ready / own.scalar:.1f}", f"{ready / own.warm:,.0f}"]
        _print_row(name, cells)


def _compare_on_the_pod() -> None:
    """Print what each engine takes for an expression that reads the pod alone."""
    pod = pod_value(POD_FIELDS, REQUEST.pod)
    activations = [{"object": request_value("object", REQUEST), "pod": pod}] * _SAMPLE
    answers = _answers(ON_PODS, activations)
    print("\non the pod alone, us for one")
    _print_heads(("closure",), answers, ("fresh", "ready", "x closure"))
    for name, text in ON_PODS.items():
        program = compile_program(text, _ENVIRONMENT)
        own = least_time(partial(_evaluate_each, program, activations)) / _SAMPLE
        cells = [f"{own:.2f}"]
        for found in answers.values():
            fresh, ready = found[name].fresh, found[name].ready
            cells += [f"{fresh:.1f}", f"{ready:.1f}", f"{ready / own:.0f}"]
        _print_row(name, cells)


def _compare_compiling(answers: _Answers) -> None:
    """Print what each engine takes to compile an expression; ours with and without its plan."""
    print("\nto compile, us")
    _print_row("", ["closures", "with plan", *answers], width=16)
    for name, text in {**FILTERS, **SCORES}.items():
        alone = least_time(partial(compile_program, text, _ENVIRONMENT))
        planned = least_time(partial(expression, name, text))
        others = [found[name].compiling for found in answers.values()]
        _print_row(name, [f"{time:.0f}" for time in (alone, planned, *others)], width=16)


def _time_decisions(view: ClusterView, answers: _Answers, nodes: int) -> None:
    """Print what a whole decision takes; of other engines, the rules on every node alone."""
    policies = PolicySet([policy_of_all()])
    fit = len(decide(REQUEST, policies, view, _NOW).candidates)
    print(
        f"\n{len(FILTERS)} filters and {len(SCORES)} scores in one decision, us; {fit:,} nodes fit"
    )
    cold = least_time(lambda: decide(REQUEST, policies, forgetful(view), _NOW), _ROUNDS)
    taken = [
        least_time(lambda: decide(REQUEST, policies, view, _NOW), 1) for _ in range(_DECISIONS)
    ]
    cuts = quantiles(taken, n=100)
    print(f"  ours: warm p50 {cuts[49]:,.0f}, p99 {cuts[98]:,.0f}; nothing remembered {cold:,.0f}")
    for engine, found in answers.items():
        ready = sum(found[name].ready for name in (*FILTERS, *SCORES)) * nodes
        print(
            f"  {engine}: {ready:,.0f} (SCALED from {_SAMPLE} nodes, without conversion),"
            f" {ready / cuts[49]:,.0f} times as long"
        )


def _print_heads(own: Sequence[str], others: Iterable[str], columns: Sequence[str]) -> None:
    """Print the heads of a table: our columns, then the same ones for each other engine."""
    wide = 11 * len(columns) - 1
    print(" " * (26 + 11 * len(own)), " ".join(f"{f' {one} ':-^{wide}}" for one in others))
    _print_row("", [*own, *(column for _ in others for column in columns)])


def _print_row(name: str, cells: Iterable[str], *, width: int = 10) -> None:
    print(f"  {name:24}", " ".join(f"{cell:>{width}}" for cell in cells))


def _activations(view: ClusterView) -> list[Activation]:
    """Return what rules may read, for each node."""
    pod = pod_value(POD_FIELDS, REQUEST.pod)
    rows = view.valid.nonzero()[0].tolist()
    return [{"pod": pod, "node": node_value(NODE_FIELDS, view, row, _NOW)} for row in rows]


def _sample(view: ClusterView) -> list[Activation]:
    return _activations(view)[:: max(1, len(view) // _SAMPLE)][:_SAMPLE]


def _evaluate_each(program: Program, activations: Iterable[Activation]) -> None:
    for one in activations:
        program.evaluate(one)


def _value(program: Program, activation: Activation) -> float | None:
    try:
        return float(program.evaluate(activation))  # type: ignore[arg-type]  # a bool or a number
    except CelError:
        return None


def _told(times: Sequence[float]) -> str:
    cold, changed, warm = times
    return f"{cold:12.0f} {changed:11.0f} {warm:10.1f}"


def expression(name: str, text: str) -> NodeExpression:
    """Return a rule as policies have it; those of `SCORES` give numbers."""
    program = compile_program(text, _ENVIRONMENT)
    return ScoreExpression(program) if name in SCORES else FilterExpression(program)


def _after_changes(cluster: ChangingCluster) -> ClusterView:
    cluster.change()
    return cluster.state.view()


def _times(
    expressions: Sequence[NodeExpression], cluster: ChangingCluster
) -> tuple[float, float, float]:
    """Return the times with nothing remembered, after changes, and warm."""
    return (
        _best(expressions, lambda: forgetful(cluster.state.view())),
        _best(expressions, lambda: _after_changes(cluster)),
        _best(expressions, cluster.state.view),
    )


def _best(expressions: Sequence[NodeExpression], prepare: Callable[[], ClusterView]) -> float:
    """Return the least time that expressions take for a view and a new request."""
    best = float("inf")
    for _ in range(_ROUNDS):
        view = prepare()
        context = RuleContext(REQUEST, view, _NOW)
        for expression in expressions:  # what a pod is, is the same for all rules
            context.activation(expression.program)
        start = time.process_time_ns()
        for expression in expressions:
            expression.column(context, view.valid)
        best = min(best, (time.process_time_ns() - start) / 1000)
    return best


def _scalar_time(program: Program, view: ClusterView) -> float:
    """Return how long it takes to ask one node after the other; the nodes are there already."""
    activations = _activations(view)
    start = time.process_time_ns()
    for one in activations:
        try:
            program.evaluate(one)
        except CelError:
            continue
    return (time.process_time_ns() - start) / 1000


if __name__ == "__main__":
    main()
