"""The parts of `kubernetes.aio` in use, imported without the other clients of its package.

The `__init__` of `kubernetes` imports every client: 250 modules, 10 MiB and a tenth of a second of
startup. It runs when anything else of the package is asked for, as `kubernetes.client`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from webhook.cluster.client.deferred_package import deferred_package

if "kubernetes" not in sys.modules and (_spec := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = deferred_package(_spec)

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
