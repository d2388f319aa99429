"""Clusters as sources of a `ClusterState`: recorded in files, or live behind an API server.

What belongs here: reading and decoding objects, applying their events, and naming the mistakes in
them: `client` talks to the API server, `watch` follows it, `usage` polls measurements, `recorded`
reads recordings and `snapshot` writes them. What never does: the meaning of an object for a
decision. Nothing imported here needs the Kubernetes client, whose import takes half a second.
"""

from webhook.cluster.cluster import Cluster, recorded_cluster
from webhook.cluster.recorded import (
    Progress,
    RecordedPods,
    Recording,
    load_recorded,
    read_folder,
    read_objects,
)

__all__ = [
    "Cluster",
    "Progress",
    "RecordedPods",
    "Recording",
    "load_recorded",
    "read_folder",
    "read_objects",
    "recorded_cluster",
]
