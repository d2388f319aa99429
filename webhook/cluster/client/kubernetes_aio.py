"""The parts of `kubernetes.aio` in use, imported without the other clients of its package.

The `__init__` of `kubernetes` imports every client: 250 modules, 10 MiB and a tenth of a second of
startup. It is skipped unless it has run already; its modules can still be imported by name.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

if "kubernetes" not in sys.modules and (_around := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = module_from_spec(_around)  # never executed

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
