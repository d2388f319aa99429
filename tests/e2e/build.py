"""Build the control plane of the end-to-end tests: `python -m tests.e2e.build`.

Two executables come out of the pinned Go modules in `controlplane/`: `controlplane` (etcd and the
Kubernetes servers) and `helm`. They are kept outside the project, under the user's cache folder, in
a folder named after the hash of what they are built from, so each version is built once.

`STOWPLAN_E2E_KUBERNETES=1.37` builds and runs the control plane of another minor version, whose
modules are pinned by `controlplane/go-1.37.mod`; Helm is always that of `controlplane/go.mod`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent / "controlplane"
MINOR_VERSION = "STOWPLAN_E2E_KUBERNETES"
_HELM = "helm.sh/helm/v3/cmd/helm"
_VERSION = "k8s.io/component-base/version"
_PINNED = re.compile(r"^\tk8s\.io/kubernetes (v1\.\d+\.\d+)$", re.MULTILINE)
_LINES_PER_MESSAGE = 100


class BuildError(Exception):
    """The executables cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Executables:
    """Where the built programs are.

    Attributes:
        version: of Kubernetes, as `v1.36.3`.
        control_plane: the program whose first argument names the part of the control plane to run.
        helm: the Helm command.
    """

    version: str
    control_plane: Path
    helm: Path


def executables() -> Executables:
    """Return the programs, built first where they are missing.

    Raises:
        BuildError: there is no Go that can build them, no modules of the version that is asked
            for, or the build failed.
    """
    usual, pinned = _Modules(MODULE / "go.mod", (".", _HELM)), _pinned()
    minor = os.environ.get(MINOR_VERSION) or usual.minor
    if minor not in pinned:
        raise BuildError(f"no modules of Kubernetes {minor}: there are {', '.join(pinned)}")
    asked = usual if minor == usual.minor else pinned[minor]
    return Executables(
        version=asked.version,
        control_plane=asked.built() / "controlplane",
        helm=usual.built() / "helm",
    )


def versions() -> dict[str, str]:
    """Return the pinned versions of Kubernetes by minor version, the oldest first."""
    return {minor: modules.version.removeprefix("v") for minor, modules in _pinned().items()}


def _pinned() -> dict[str, _Modules]:
    """Return the modules of control planes by minor version, the oldest first."""
    every = [_Modules(file, (".",)) for file in MODULE.glob("go*.mod")]
    return {each.minor: each for each in sorted(every, key=lambda each: each.minor)}


@dataclass(frozen=True, slots=True)
class _Modules:
    """Pinned modules, and the programs that are built with them.

    Attributes:
        file: what pins them; a file of the same name that ends in `.sum` is beside it.
        programs: their Go packages.
    """

    file: Path
    programs: Sequence[str]

    @property
    def version(self) -> str:
        """The version of Kubernetes, as `v1.36.3`."""
        (version,) = _PINNED.findall(self.file.read_text(encoding="utf-8"))
        return str(version)

    @property
    def minor(self) -> str:
        """Its minor version, as `1.36`."""
        return self.version.removeprefix("v").rpartition(".")[0]

    def built(self) -> Path:
        """Return the folder with the programs."""
        folder = _cache() / self._fingerprint()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run of the tests may be building them
            if not folder.exists():
                self._build(folder)
        return folder

    def _fingerprint(self) -> str:
        """Return a name that changes with anything the programs are built from."""
        pinned = [self.file, self.file.with_suffix(".sum")]
        digest = hashlib.sha256()
        for source in [*pinned, *sorted(MODULE.glob("*.go"))]:
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return digest.hexdigest()[:16]

    def _build(self, folder: Path) -> None:
        """Compile into a folder next to the final one, which appears complete or not at all."""
        go = self._go()
        print(f"building the Kubernetes control plane with {_answer(go, 'env', 'GOVERSION')}")
        print("once per version: five to fifteen minutes on two cores, 4 GB in Go's caches")
        started = time.monotonic()
        packages = len(self._list(go, "-deps", *self.programs).split())
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            flags = ["-v", "-trimpath", "-tags", f"kubernetes{self.minor}"]
            flags += ["-ldflags", self._linker_flags()]
            (Path(scratch) / "programs").mkdir()
            output = ["-o", f"{scratch}/programs"]
            _compile([go, "build", self._modfile, *flags, *output, *self.programs], packages)
            (Path(scratch) / "programs").rename(folder)
        print(f"built in {time.monotonic() - started:.0f} s: {folder}", flush=True)

    def _go(self) -> str:
        """Return the path of a Go command that takes the modules.

        Raises:
            BuildError: there is none, or it is too old and may not fetch a newer one.
        """
        wanted = next(line.split()[1] for line in _lines(self.file) if line.startswith("go "))
        go = shutil.which("go")
        if go is None:
            raise BuildError(
                f"the end-to-end tests build Kubernetes from source and need Go {wanted} or newer; "
                "there is no `go` on the PATH"
            )
        asked = _run(go, "list", self._modfile, "-m")  # refused where a newer Go is needed
        if asked.returncode:
            raise BuildError(
                f"the end-to-end tests need Go {wanted} or newer: {asked.stderr.strip()}"
            )
        return go

    def _linker_flags(self) -> str:
        """Return flags that leave debug information out and say which Kubernetes this is."""
        major, minor = self.minor.split(".")
        facts = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        names = [f"-X {_VERSION}.{name}={fact}" for name, fact in facts.items()]
        return " ".join(["-s -w", *names])

    def _list(self, go: str, *arguments: str) -> str:
        return _answer(go, "list", self._modfile, *arguments)

    @property
    def _modfile(self) -> str:
        return f"-modfile={self.file}"


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "stowplan" / "e2e"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


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


def _answer(go: str, *arguments: str) -> str:
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
        print(executables().control_plane.parent)
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
