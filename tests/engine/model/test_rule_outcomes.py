from __future__ import annotations

import msgspec
import pytest

from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit, unit_of

MIB = 2**20


@pytest.mark.parametrize(
    ("resource", "amount", "words"),
    [
        ("cpu", 1500, "1.5 cores"),
        ("cpu", 1000, "1 core"),
        ("cpu", 0, "0 cores"),
        ("memory", 1536 * MIB, "1.5 GiB"),
        ("memory", 100, "100 bytes"),
        ("hugepages-2Mi", 4 * MIB, "4 MiB"),
        ("nvidia.com/gpu", 3, "3"),
        ("memory", -(2**30), "-1 GiB"),
    ],
)
def test_an_amount_is_written_as_people_write_it(resource: str, amount: int, words: str) -> None:
    assert RuleInput(resource, amount, unit_of(resource)).describe() == words


@pytest.mark.parametrize(
    ("resource", "part", "whole", "words"),
    [
        ("cpu", 10_000, 8000, "10 of 8 cores"),
        ("memory", 512 * MIB, 2048 * MIB, "0.5 of 2 GiB"),
        ("pods", 9, 110, "9 of 110"),
    ],
)
def test_a_part_and_its_whole_share_a_unit(
    resource: str, part: int, whole: int, words: str
) -> None:
    assert RuleInput(resource, part, unit_of(resource), capacity=whole).describe() == words


def test_the_parts_of_an_input_are_named_and_containers_are_not() -> None:
    cpu, memory = RuleInput("cpu", 2000, Unit.MILLICORES), RuleInput("memory", MIB, Unit.BYTES)
    first = RuleInput("", parts=(cpu, memory))
    assert first.describe() == "cpu 2 cores, memory 1 MiB"
    containers = RuleInput("requests", parts=(first, RuleInput("", text="none")))
    assert containers.describe() == "cpu 2 cores, memory 1 MiB; none"


def test_an_input_is_the_same_after_json_and_names_only_what_it_has() -> None:
    usage = RuleInput(
        "cpu usage", 9000, Unit.MILLICORES, capacity=8000, pod=500, allowed_percent=65
    )
    inputs = (usage, RuleInput("label a", text=""), RuleInput("all", parts=(usage,)))
    assert msgspec.to_builtins(usage) == {
        "name": "cpu usage",
        "value": 9000,
        "unit": "millicores",
        "capacity": 8000,
        "pod": 500,
        "allowedPercent": 65,
    }
    assert msgspec.json.decode(msgspec.json.encode(inputs), type=RuleInputs) == inputs
