"""The image without a container engine: its build stage, carried out in a folder of this machine.

What stands in the Dockerfile is done as it stands there, but for three things: its folders are in
the given one, the Python of `PYTHON_IMAGE` is the one that runs this, and so are its shell tools.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_PREFIX = "/opt/stowplan"
_PYTHON = "/usr/local/bin/python"
_READ_ONLY = """
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -o remount,bind,ro / && exec "$@"
"""


class Instruction(NamedTuple):
    """A line of a Dockerfile, with those that continue it."""

    name: str
    text: str


def stages() -> list[list[Instruction]]:
    """Return the instructions of the Dockerfile, stage by stage; each begins with its `FROM`."""
    found: list[list[Instruction]] = []
    for one in _instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        if one.name == "FROM":
            found.append([])
        if found:
            found[-1].append(one)
    return found


def _instructions(text: str) -> Iterator[Instruction]:
    without_comments = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n", "", without_comments).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            yield Instruction(name, rest.strip())


def context(folder: Path) -> Path:
    """Copy what `.dockerignore` lets through into a new folder, and return it."""
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in (rule[1:] for rule in rules if rule.startswith("!")):
        _copy(ROOT / name, folder / name)
    return folder


def built(folder: Path, sources: Path) -> Path:
    """Carry out the build stage anew; return what the final stage copies.

    Args:
        folder: for all that is made; what is in it goes.
        sources: what may be copied into the image.

    Raises:
        CalledProcessError: a step fails; its output has been shown.
    """
    shutil.rmtree(folder, ignore_errors=True)
    base, prefix, within = folder / "base", folder / "opt" / "stowplan", folder
    prefix.parent.mkdir(parents=True)
    venv.create(base, with_pip=True)
    places = {_PYTHON: str(base / "bin" / "python"), _PREFIX: str(prefix)}
    given = {**os.environ, "PATH": f"{base / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    for name, text in stages()[-2][1:]:
        if name == "ENV":
            given |= dict(pair.split("=", 1) for pair in shlex.split(text))
        elif name == "WORKDIR":
            within = folder / text.removeprefix("/")
            within.mkdir(parents=True)
        elif name == "COPY":
            *names, to = shlex.split(text)
            for source in names:
                path = sources / source
                _copy(path, within / to / ("" if path.is_dir() else source))
        elif name == "RUN":
            for place, here in places.items():
                text = text.replace(place, here)  # noqa: PLW2901 - the same text, from here on
            subprocess.run(["/bin/sh", "-ec", text], cwd=within, env=given, check=True)  # noqa: S603 - ours
        else:
            raise ValueError(f"`{name}` of the Dockerfile is not known here")
    return prefix


def _copy(source: Path, to: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)  # with the time of this moment


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of each file, by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def where_nothing_is_written(prefix: Path, command: str) -> tuple[str, ...]:
    """Return what runs a command of the image where its own files and the root are read-only."""
    away = ("unshare", "--user", "--map-root-user", "--mount")
    program = str(prefix / "bin" / command)
    return (*away, "sh", "-c", _READ_ONLY.strip(), str(prefix), program)
