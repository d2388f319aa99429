"""The API server's HTTP interface: connection, credentials and envelopes, in raw bytes.

What belongs here: requests, their failures, and proving who we are. What never does: the meaning of
an object, or when to ask again.

Of the package `kubernetes` only parts of `kubernetes.aio` are in use. Its `__init__` imports every
client: 250 modules, 10 MiB and a tenth of a second of startup. Here it is deferred until anything
else of the package is asked for, as `kubernetes.client`.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
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


def _deferred_package(spec: ModuleSpec) -> ModuleType:
    """Return the package of a spec, whose `__init__` has not run yet."""
    package = module_from_spec(spec)
    package.__class__ = _DeferredPackage
    return package


if "kubernetes" not in sys.modules and (_spec := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = _deferred_package(_spec)
