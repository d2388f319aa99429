"""Where what we know of a cluster comes from: sources that turn objects into a `ClusterState`.

What belongs here: reading objects from files or from the API server, decoding them, and saying what
is wrong with which of them. What never does: what an object means for a decision. `live` and what
it needs are not imported here: the Kubernetes client takes half a second, and a recorded cluster
does without.
"""

from webhook.cluster.files.recorded import Progress, Recording, load_recorded, read_objects

__all__ = ["Progress", "Recording", "load_recorded", "read_objects"]
