"""The parts of `kubernetes.aio` that are used here, without the clients beside it.

To import it runs the code of the package around it, which imports every other client too: 250
modules, 10 MiB and a tenth of a second of the start. So that code is left out, unless it has run
already; the modules of the package can be imported by name all the same.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

if "kubernetes" not in sys.modules and (_around := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = module_from_spec(_around)  # found, and never run

# ruff: isort: split
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import KUBE_CONFIG_DEFAULT_LOCATION, ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

__all__ = [
    "KUBE_CONFIG_DEFAULT_LOCATION",
    "ApiClient",
    "ConfigException",
    "Configuration",
    "InClusterConfigLoader",
    "RESTClientObject",
    "load_kube_config",
]
