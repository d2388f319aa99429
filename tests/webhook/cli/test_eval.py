from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.webhook.cli.running import CLUSTER, POD, Stowplan

BUSY = "node.usage.cpu / node.allocatable.cpu"
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: p }
spec:
  variables:
    - { name: cpu, expression: pod.requests.cpu }
    - { name: twice, expression: variables.cpu * 2.0 }
  filters:
    - { name: room, expression: "node.allocatable.cpu > variables.twice" }
"""


def rows(out: str) -> dict[str, str]:
    """Return the value that is printed for each node."""
    lines = (line.split(maxsplit=1) for line in out.splitlines())
    return {line[0]: line[1].strip() for line in lines if line and line[0].startswith("node")}


def test_the_value_is_shown_for_each_node_and_counted(stowplan: Stowplan) -> None:
    ran = stowplan("eval", f"{BUSY} < 0.65", *CLUSTER)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "4 nodes: true for 3, false for 1"
    expected = {"node1": "true", "node2": "true", "node3": "false", "node4": "true"}
    assert rows(ran.out).items() >= expected.items()


def test_it_says_how_all_nodes_are_evaluated_at_once(stowplan: Stowplan) -> None:
    out = stowplan("eval", f"{BUSY} < 0.65", *CLUSTER).out
    plan = out.partition("How it is evaluated")[2].splitlines()
    assert plan[1].split() == ["columns", "4.0", "us", *f"{BUSY} < 0.65".split()]


def test_numbers_have_a_range_and_the_first_nodes_are_listed(stowplan: Stowplan) -> None:
    out = stowplan("eval", "node.allocatable.cpu", *CLUSTER, "--nodes", "1").out
    assert out.splitlines()[0] == "4 nodes: 8 to 8, on average 8"
    assert rows(out)["node1"] == "8.0"
    assert "... and 3 more" in out
    assert "node2" not in out.partition("How")[0]


def test_a_node_without_a_value_says_why(stowplan: Stowplan) -> None:
    out = stowplan("eval", "int(node.labels.generation) > 6", *CLUSTER).out
    assert out.splitlines()[0] == "4 nodes: no value for 4"
    assert rows(out)["node1"] == "error: no such key: `generation`"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("node.ready and true", "<expression>:1:12: unexpected `and`\n | node.ready and true\n"),
        ("node.status.ready", "<expression>:1:6: `node` has no field `status`\n"),
        ("node.usage.memroy > 1.0", "<expression>:1:12: `node.usage` cannot have a resource"),
        ("variables.cpu > 1.0", "<expression>:1:11: `variables` has no field `cpu`\n"),
    ],
)
def test_a_mistake_has_its_place(stowplan: Stowplan, expression: str, message: str) -> None:
    ran = stowplan("eval", expression, *CLUSTER)
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.startswith(message)
    assert " | ." in ran.err


def test_a_pod_is_needed_where_it_is_read(stowplan: Stowplan) -> None:
    expression = "node.allocatable.cpu > pod.requests.cpu"
    ran = stowplan("eval", expression, *CLUSTER)
    assert ran.status == 1
    assert ran.err.startswith("the expression reads `pod`\nhint: ")
    ran = stowplan("eval", expression, *CLUSTER, "--pod", POD)
    assert ran.out.startswith("4 nodes: true for 4, false for 0\n")


def test_variables_are_those_of_policies_and_of_the_command_line(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    given = ("--policies", file, "--variable", "thrice=variables.twice + variables.cpu")
    expression = "node.allocatable.cpu - variables.thrice"
    ran = stowplan("eval", expression, *CLUSTER, *given)
    assert ran.err.startswith("the expression reads `pod`")  # by way of variables
    ran = stowplan("eval", expression, *CLUSTER, *given, "--pod", POD)
    assert ran.out.startswith("4 nodes: 5 to 5, on average 5\n")  # 8 - 3 * 1 cores


def test_a_mistake_in_a_variable_has_its_place(stowplan: Stowplan) -> None:
    ran = stowplan("eval", "variables.x", *CLUSTER, "--variable", "x=1 +")
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.startswith("<variable x>:1:4: ")
    ran = stowplan("eval", "variables.x", *CLUSTER, "--variable", "x")
    assert (ran.status, ran.err) == (1, "--variable: expected `NAME=EXPRESSION`, not `x`\n")


def test_an_expression_that_reads_no_node_has_one_value(stowplan: Stowplan) -> None:
    out = stowplan("eval", "now", *CLUSTER).out.splitlines()
    assert out[0] == '"2026-03-02T10:00:20Z"'
    out = stowplan("eval", "now", *CLUSTER, "--now", "2026-03-02T12:00:00Z").out.splitlines()
    assert out[0] == '"2026-03-02T12:00:00Z"'
    assert out[-1] == "neither a filter nor a score: its type is `google.protobuf.Timestamp`"


def test_json_is_all_there_is_on_standard_output(stowplan: Stowplan) -> None:
    expression = "has(node.usage) && int(node.labels.generation) > 6"
    told = json.loads(stowplan("eval", expression, *CLUSTER, "--json").out)
    assert told["type"] == "bool"
    assert set(told["errors"]) | set(told["values"]) == {"node1", "node2", "node3", "node4"}
    assert told["parts"][0]["text"] == expression
    told = json.loads(stowplan("eval", "[duration('90s'), 1.0 / 0.0]", *CLUSTER, "--json").out)
    assert (told["value"], told["values"], told["parts"]) == (["90s", "inf"], {}, [])


def test_the_parts_of_an_expression_are_shown_as_they_were_written(stowplan: Stowplan) -> None:
    expression = "format.dns1123Label().validate(node.name).hasValue()"
    ran = stowplan("eval", expression, *CLUSTER, "--json")
    assert json.loads(ran.out)["parts"][0]["text"] == expression
