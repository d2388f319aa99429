"""A package whose `__init__` runs when it is needed, and not for the import of its modules."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType


class _DeferredPackage(ModuleType):
    """Becomes the package itself as soon as it is asked for an attribute that it lacks.

    `importlib.util.LazyLoader` would run `__init__` for the import of any of its modules.
    """

    def __getattr__(self, name: str) -> object:
        module = sys.modules.get(f"{self.__name__}.{name}")
        if module is not None:  # while it is imported it is no attribute yet
            return module
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(self)
        return getattr(self, name)


def deferred_package(spec: ModuleSpec) -> ModuleType:
    """Return the package of a spec; its `__init__` has not run yet."""
    package = module_from_spec(spec)
    package.__class__ = _DeferredPackage
    return package
