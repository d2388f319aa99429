"""The parts of `kubernetes.aio` in use, imported without the other clients of its package.

The `__init__` of `kubernetes` imports every client: 250 modules, 10 MiB and a tenth of a second of
startup. It runs when anything else of the package is asked for, as `kubernetes.client`.
"""

# ruff: noqa: E402 - the package is deferred before its modules are imported

from __future__ import annotations

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

# ruff: isort: split
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import KUBE_CONFIG_DEFAULT_LOCATION, ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

__all__ = [
    "KUBE_CONFIG_DEFAULT_LOCATION",
    "ConfigException",
    "Configuration",
    "InClusterConfigLoader",
    "RESTClientObject",
    "load_kube_config",
]
