"""`stowplan init`: a folder with a policy, its cases and what an editor needs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from shlex import quote
from string import Template
from typing import Annotated, Final

from rich.markup import escape

from engine.errors import StowplanError, counted
from engine.policy import PolicySet, load_policies
from engine.proposals import Proposal, proposals
from engine.report import ArmPlacement, ArmReport, Measure, first_hot_nodes
from engine.simulation import Arm, RecordedCluster, Simulation, recorded_arrivals, simulate, what_if
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster
from webhook.cli.console import write_new
from webhook.cli.exit_codes import Exit
from webhook.cli.options import described
from webhook.cli.pods import PodCollector
from webhook.cli.policy_loading import SCHEMA

_FILES: Final = ("policy.yaml", "cases.yaml")
_WIDTH: Final = 79
_ALL: Final = "all of them"


def write_proposals(folder: Path, recording: Sequence[Path]) -> int:
    """Write a folder with each policy that a recorded cluster gives reason for."""
    collector = PodCollector()
    loaded = load_cluster(recording, console.errors(), observers=[collector])
    view, pods = loaded.state.view(), list(collector.pods.values())
    found = proposals(view, [each.pod for each in pods])
    if not found:
        hint = "`stowplan init DIR` writes a policy to start from"
        raise StowplanError(f"the recording gives no reason for a policy\nhint: {hint}")
    cluster = RecordedCluster.of(view, pods, loaded.recorded_at)
    effects, best = _effects(found, cluster)
    texts = {f".{SCHEMA.name}": SCHEMA.read_text("utf-8")}
    for each in found:
        texts |= _texts(each, effects[each.name])
    write_new(folder, texts)
    _show(folder, found, effects)
    _show_next(folder, folder if best == _ALL or len(found) == 1 else folder / best, recording)
    return Exit.OK


def _texts(proposal: Proposal, effect: str) -> dict[str, str]:
    """Return the files of a policy, by their names below the folder."""
    template = files("webhook.cli").joinpath("proposed_policies", proposal.name)
    lines = [proposal.reason, *([f"simulated: {effect}"] if effect else ())]
    comment = "\n".join(_filled(f"{line[:1].upper()}{line[1:]}.", "# ") for line in lines)
    values = {**proposal.values, "why": comment}
    return {
        f"{proposal.name}/{file}": Template(template.joinpath(file).read_text("utf-8")).substitute(
            values
        )
        for file in _FILES
    }


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _effects(found: Sequence[Proposal], cluster: RecordedCluster) -> tuple[dict[str, str], str]:
    """Return what each policy, and all of them, would change, and which of them does it best."""
    policies: dict[str, PolicySet] = {}
    for each in found:
        text = _texts(each, "")[f"{each.name}/{_FILES[0]}"]
        policies[each.name] = load_policies((), {each.name: text.encode()})
    together = PolicySet(policy for each in policies.values() for policy in each)
    arms = [
        Arm(name=name, placement=ArmPlacement.BINDING, policies=each)
        for name, each in {**policies, _ALL: together}.items()
    ]
    scenario = what_if(cluster, (), recorded_arrivals(cluster.pods))
    report = simulate(Simulation(scenario=scenario, arms=arms))
    stock, *others = report.arms
    proposed = [arm for arm in others if arm.name in {*policies, _ALL}]
    moves = counted(report.arrivals.pods, "pod")
    hot = first_hot_nodes(report)
    best = min(proposed, key=_badness)
    return {arm.name: _effect(stock, hot, arm, moves) for arm in proposed}, best.name


def _badness(arm: ArmReport) -> tuple[float, ...]:
    """Return the figures that are shown of an arm, the most important first; less is better."""
    shown = (round(_most(arm, measure)) for measure in (Measure.LOAD, Measure.LIMITS))
    return (arm.unplaced, arm.hot_nodes, *shown)


def _effect(stock: ArmReport, stock_hot: str, arm: ArmReport, pods: str) -> str:
    """Return what an arm changes, compared with the scheduler alone."""
    if not arm.moves:
        return "no pod goes elsewhere than the scheduler alone puts it on the empty nodes"
    changes = [f"hot nodes {stock_hot} -> {arm.hot_nodes:,}"]
    for measure, what in ((Measure.LOAD, "fullest node"), (Measure.LIMITS, "limits up to")):
        before, after = _most(stock, measure), _most(arm, measure)
        changes.append(f"{what} {before:.0f} -> {after:.0f} % of cpu")
    if arm.unplaced != stock.unplaced:
        changes.append(f"pods without a node {stock.unplaced} -> {arm.unplaced}")
    return f"{', '.join(changes)}, {arm.moves} of {pods} elsewhere"


def _most(arm: ArmReport, measure: Measure) -> float:
    spreads = (each for each in arm.spreads if (each.measure, each.resource) == (measure, "cpu"))
    return max((each.max for each in spreads), default=0.0)


def _show(folder: Path, found: Sequence[Proposal], effects: dict[str, str]) -> None:
    output = console.output()
    for each in found:
        output.print(f"[bold]{escape(str(folder / each.name / _FILES[0]))}[/]")
        output.print(_filled(f"why: {each.reason}", "  "), markup=False)
        output.print(_filled(f"simulated: {effects[each.name]}", "  "), markup=False)
    if len(found) > 1:
        output.print(f"\n[bold]{_ALL}[/]")
        output.print(_filled(f"simulated: {effects[_ALL]}", "  "), markup=False)


def _show_next(folder: Path, arm: Path, recording: Sequence[Path]) -> None:
    """Print how to go on, with the picture of the policy that is best by itself."""
    clusters = " ".join(f"--cluster {quote(str(path))}" for path in recording)
    console.output().print(
        f"\nnext: stowplan test {quote(str(folder))}\n"
        f"      stowplan simulate {clusters} --arm {quote(str(arm))} --html report.html",
        markup=False,
        soft_wrap=True,
    )


_TEMPLATES: Final = ("policy.yaml", "cases.yaml", "README.md")
_HIDDEN_SCHEMA: Final = f".{SCHEMA.name}"
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def init(
    folder: Annotated[Path, described("Folder to write.")] = Path(),
    /,
    *,
    from_cluster: Annotated[
        list[Path] | None,
        described("Recording: write the policies that it gives reason for."),
    ] = None,
) -> int:
    """Write a policy to start from, with cases that pass.

    Nothing is overwritten. The policy has the name of the folder.
    """
    if from_cluster:
        return write_proposals(folder, from_cluster)
    template = files("webhook.cli").joinpath("new_policy")
    name = _NO_NAME.sub("-", folder.resolve().name.lower()).strip("-") or "my-policy"
    texts = {
        file: template.joinpath(file).read_text("utf-8").replace("NAME", name)
        for file in _TEMPLATES
    }
    texts[_HIDDEN_SCHEMA] = SCHEMA.read_text("utf-8")
    write_new(folder, texts)
    output = console.output()
    for file in texts:
        output.print(f"wrote {escape(str(folder / file))}")
    output.print(f"next: stowplan test {escape(quote(str(folder)))} --watch")
    return Exit.OK
