"""Build the control plane of the end-to-end tests: `python -m tests.e2e.build`.

Two executables come out of the pinned Go modules in `controlplane/`: `controlplane` (etcd and the
Kubernetes servers) and `helm`. They are kept outside the project, under the user's cache folder, in
a folder named after the hash of what they are built from, so each version is built once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent / "controlplane"
_HELM = "helm.sh/helm/v3/cmd/helm"
_VERSION = "k8s.io/component-base/version"
_LINES_PER_MESSAGE = 100


class BuildError(Exception):
    """The executables cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Executables:
    """Where the built programs are."""

    folder: Path

    @property
    def control_plane(self) -> Path:
        """The program whose first argument names the part of the control plane to run."""
        return self.folder / "controlplane"

    @property
    def helm(self) -> Path:
        """The Helm command."""
        return self.folder / "helm"

    @property
    def complete(self) -> bool:
        """Whether both are there."""
        return self.control_plane.exists() and self.helm.exists()


def executables() -> Executables:
    """Return the programs, built first where they are missing.

    Raises:
        BuildError: there is no Go that can build them, or the build failed.
    """
    built = Executables(_cache() / _fingerprint())
    if not built.complete:
        _build(built.folder)
    return built


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "stowplan" / "e2e"


def _fingerprint() -> str:
    """Return a name that changes with anything the programs are built from."""
    sources = [MODULE / "go.mod", MODULE / "go.sum", *sorted(MODULE.glob("*.go"))]
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _build(folder: Path) -> None:
    """Compile into a folder next to the final one, which appears complete or not at all."""
    go = _go()
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"building the Kubernetes control plane with {_ask(go, 'env', 'GOVERSION')}")
    print("once per version: five to fifteen minutes on two cores, 4 GB in Go's caches", flush=True)
    started = time.monotonic()
    packages = len(_ask(go, "list", "-deps", ".", _HELM).split())
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        command = [go, "build", "-v", "-trimpath", "-ldflags", _linker_flags(go)]
        _compile([*command, "-o", scratch, ".", _HELM], packages)
        Path(scratch).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scratch, folder)
    print(f"built in {time.monotonic() - started:.0f} s: {folder}", flush=True)


def _go() -> str:
    """Return the path of a Go command that takes the module.

    Raises:
        BuildError: there is none, or it is too old and may not fetch a newer one.
    """
    wanted = next(line.split()[1] for line in _lines(MODULE / "go.mod") if line.startswith("go "))
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            f"the end-to-end tests build Kubernetes from source and need Go {wanted} or newer; "
            "there is no `go` on the PATH"
        )
    asked = _run(go, "list", "-m")  # refused where the module wants a newer Go
    if asked.returncode:
        raise BuildError(f"the end-to-end tests need Go {wanted} or newer: {asked.stderr.strip()}")
    return go


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _linker_flags(go: str) -> str:
    """Return flags that leave debug information out and say which Kubernetes this is."""
    version = _ask(go, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {_VERSION}.{name}={fact}" for name, fact in facts.items())])


def _compile(command: list[str], packages: int) -> None:
    """Run the compiler; its verbose output, one package a line, becomes progress messages."""
    said: list[str] = []
    with subprocess.Popen(  # noqa: S603 (the command is written above)
        command, cwd=MODULE, env=_environment(), stderr=subprocess.PIPE, text=True
    ) as compiler:
        for line in compiler.stderr or ():
            said.append(line)
            if len(said) % _LINES_PER_MESSAGE == 0:
                print(f"compiled {len(said)} of at most {packages} packages", flush=True)
    if compiler.returncode:
        raise BuildError("the control plane does not build:\n" + "".join(said[-20:]))


def _ask(go: str, *arguments: str) -> str:
    """Return what a Go command prints.

    Raises:
        BuildError: it failed.
    """
    done = _run(go, *arguments)
    if done.returncode:
        raise BuildError(f"`go {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _run(go: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 (the command is written in this file)
        [go, *arguments],
        cwd=MODULE,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def _environment() -> dict[str, str]:
    """Return the environment for Go: the user's, without a C compiler."""
    return {**os.environ, "CGO_ENABLED": "0"}


def main() -> None:
    """Build, and say where the result is."""
    try:
        print(executables().folder)
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
