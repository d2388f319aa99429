"""A live cluster: each kind is listed and watched, and its events applied to one `ClusterState`.

What belongs here: reflectors, the appliers of events, and the status of sources. What never does:
the bytes on the wire, or decisions.
"""
