"""Copies of a package of the engine with a small mistake in one module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Mutated(MetaPathFinder, Loader):
    """Finds one module, with some other text in the place of its own."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load that module, None for any other."""
        del path, target
        return spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the text."""
        exec(compile(self._text, self._name, "exec"), module.__dict__)  # noqa: S102


@contextmanager
def mutated(package: ModuleType, module: str, old: str, new: str) -> Iterator[ModuleType]:
    """Yield a copy of a package in which a text of a module, which is there once, is replaced."""
    assert package.__file__ is not None
    source = (Path(package.__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    assert source.count(old) == 1, "the text of a mutant is there once"
    prefix = package.__name__
    finder = _Mutated(f"{prefix}.{module}", source.replace(old, new))
    own = {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith(prefix)}
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(prefix)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(prefix)]:
            del sys.modules[name]
        sys.modules.update(own)
