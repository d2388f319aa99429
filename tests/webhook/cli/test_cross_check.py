from __future__ import annotations

from pathlib import Path

from tests.webhook.cli.running import Stowplan

POLICY = """\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: p }
spec: { scores: [{ name: s, expression: EXPRESSION }] }
"""
CASES = """\
- name: one node
  cluster: { nodes: [{ metadata: { name: a }, status: { allocatable: { cpu: "4", pods: "9" } } }] }
  pod: { spec: { containers: [{}] } }
  expect: { best: a }
"""


def files(folder: Path, expression: str) -> Path:
    """Return a folder with a policy and a case that passes."""
    (folder / "policy.yaml").write_text(POLICY.replace("EXPRESSION", expression))
    (folder / "cases.yaml").write_text(CASES)
    return folder


def test_what_was_compared_is_counted(stowplan: Stowplan, tmp_path: Path) -> None:
    ran = stowplan("test", files(tmp_path, "node.allocatable.cpu"), "--cross-check")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith(
        "1 passed, 0 failed\ncross-check with cel-python: 1 expression, 1 value, no difference\n"
    )


def test_what_could_not_be_compared_is_named(stowplan: Stowplan, tmp_path: Path) -> None:
    expression = "math.abs(node.allocatable.cpu)"
    ran = stowplan("test", files(tmp_path, expression), "--cross-check")
    assert ran.status == 0
    assert f"not compared, cel-python cannot read it: {expression}\n" in ran.out


def test_a_difference_is_a_finding(stowplan: Stowplan, tmp_path: Path) -> None:
    # cel-python takes hexadecimal numbers, where the language knows none.
    expression = "'n' in node.labels ? 0 : int('0x1F')"
    ran = stowplan("test", files(tmp_path, f'"{expression}"'), "--cross-check")
    assert "1 passed, 0 failed\n" in ran.out
    assert f"       p: s, node a: {expression}\n       an error: `0x1F` " in ran.out
    assert ran.out.endswith(" 1 differ\n")
    assert ran.status == 2
