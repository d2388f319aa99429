"""Extended resources that devices of dynamic resource allocation provide."""

from __future__ import annotations

from engine.model.device_class import IMPLICIT_DOMAIN, DeviceClass
from engine.view.axis import BoolColumn
from engine.view.cluster_view import ClusterView


def is_device_resource(name: str, view: ClusterView) -> bool:
    """Return whether devices of some class may provide an extended resource.

    Source: pkg/scheduler/framework/plugins/noderesources/fit.go, shouldDelegateResourceToDRA.
    Unlike there, a name below `deviceclass.resource.kubernetes.io/` needs no class: one may come.
    """
    return name.startswith(IMPLICIT_DOMAIN) or view.lookup(DeviceClass, name) is not None


def left_to_devices(name: str, view: ClusterView) -> BoolColumn | None:
    """Return the nodes on which devices decide of a resource, (n,): those that offer none of it.

    None where it is no resource of devices. Which of these nodes has the devices is not known here.
    """
    if not is_device_resource(name, view):
        return None
    return view.amount(view.allocatable, name) <= 0
