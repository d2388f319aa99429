"""The module `stowplan`: what its page says, and how it comes to who installs the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import stowplan
import stowplan.api

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
((EXAMPLE, PRINTED),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)


def _ran(
    *command: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - ours


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    built = _ran(BIN / "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python where the wheel is installed, with the dependencies of this one."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home)
    (packages,) = home.glob("lib/python3*/site-packages")
    (here,) = Path(sys.prefix).glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(f"{here}\n", encoding="utf-8")
    program = home / "bin" / "python"
    done = _ran(BIN / "uv", "pip", "install", "--no-deps", "--python", program, wheel, cwd=home)
    assert done.returncode == 0, done.stderr
    return program


def test_the_example_of_the_page_prints_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    output = StringIO()
    with redirect_stdout(output):
        exec(EXAMPLE, {})  # noqa: S102 - ours
    assert output.getvalue() == PRINTED


def test_the_page_and_the_module_have_the_same_names() -> None:
    assert stowplan.__all__ == stowplan.api.__all__
    table = "\n".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))
    assert set(re.findall(r"`([A-Za-z_]+)(?:\(|`)", table)) == set(stowplan.__all__)
    assert all(getattr(stowplan, name) for name in stowplan.__all__)


def test_what_it_does_not_export_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module `stowplan` has no `Decide`"):
        getattr(stowplan, "Decide")  # noqa: B009 - mypy knows that there is none


def test_a_package_index_can_show_the_readme(wheel: Path) -> None:
    checked = _ran(BIN / "twine", "check", "--strict", wheel, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout


def test_the_readme_of_a_package_index_leads_somewhere(python: Path) -> None:
    script = "import importlib.metadata as m; print(m.metadata('stowplan').get_payload())"
    shown = _ran(python, "-c", script, cwd=python.parent).stdout
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_installed_module_explains_by_a_policy_to_start_from(python: Path) -> None:
    data = ROOT / "webhook" / "demo"
    pod, cluster = data / "pods" / "1-limits.yaml", data / "cluster.yaml"
    command = ("-m", "stowplan", "explain", pod, "--cluster", cluster, "--policies", "balanced")
    done = _ran(python, *command, cwd=python.parent)
    assert done.stdout.startswith("Place shop/checkout: "), done.stderr
    where = _ran(python, "-c", "import stowplan; print(stowplan.__file__)", cwd=python.parent)
    assert Path(where.stdout.strip()).is_relative_to(python.parents[1])


@pytest.mark.parametrize("name", ["engine", "webhook"])
def test_a_package_of_the_same_name_is_named_and_no_traceback_shown(
    python: Path, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = _ran(python, "-m", "stowplan", "--version", cwd=tmp_path)
    assert done.stderr == (
        f"{tmp_path / name}: hides the package `{name}` of stowplan\n"
        f"hint: run it in another folder, without {tmp_path} in PYTHONPATH\n"
    )
    assert done.returncode == 1
