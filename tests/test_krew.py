"""The plugin of kubectl as Krew installs it; a release completes `.krew.yaml`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TEMPLATE = (ROOT / ".krew.yaml").read_text(encoding="utf-8")


def _installed(folder: Path, *runners: str) -> tuple[Path, dict[str, str]]:
    """Return the plugin as Krew links it, and an environment with programs that tell their args."""
    store = folder / "store/stowplan/v0.1.0"
    programs = folder / "programs"
    for each in (store, programs):
        each.mkdir(parents=True)
    shutil.copy(ROOT / "webhook/python/kubectl-stowplan", store)
    link = folder / "kubectl-stowplan"
    link.symlink_to(store / "kubectl-stowplan")
    for name in ("basename", "dirname", "readlink"):
        (programs / name).symlink_to(shutil.which(name) or name)
    for name in runners:
        path = programs / name
        path.write_text(f'#!/bin/sh\necho {name} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return link, {"PATH": str(programs)}


@pytest.mark.parametrize(
    ("runners", "run"),
    [
        (("uvx", "pipx"), "uvx --quiet --from stowplan==0.1.0 stowplan explain pod/web-0"),
        (("pipx",), "pipx run --quiet --spec stowplan==0.1.0 stowplan explain pod/web-0"),
    ],
)
def test_it_runs_the_package_of_its_version(
    tmp_path: Path, runners: tuple[str, ...], run: str
) -> None:
    plugin, env = _installed(tmp_path, *runners)
    done = subprocess.run(  # noqa: S603 - ours
        [plugin, "explain", "pod/web-0"], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{run}\n"


def test_where_nothing_can_run_it_that_is_said(tmp_path: Path) -> None:
    plugin, env = _installed(tmp_path)
    done = subprocess.run([plugin], env=env, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert done.returncode == 1
    assert done.stderr.startswith("kubectl stowplan needs uv or pipx, which run stowplan==0.1.0")


def test_the_manifest_names_files_there_are() -> None:
    # As krew-release-bot writes it: its second line has four spaces wherever the first one stands.
    completed = re.sub(r"\{\{addURIAndSha .*\}\}", "uri: https://x\n    sha256: abc", TEMPLATE)
    spec = yaml.safe_load(completed.replace("{{ .TagName }}", "v0.1.0"))["spec"]
    (platform,) = spec["platforms"]
    assert platform.keys() == {"selector", "uri", "sha256", "files", "bin"}
    sources = [each["from"].removeprefix("stowplan-*/") for each in platform["files"]]
    assert all((ROOT / each).is_file() for each in sources)
    assert platform["bin"] in {Path(each).name for each in sources}
    assert (ROOT / "webhook/python" / platform["bin"]).stat().st_mode & 0o111
