"""A live cluster: every kind listed and watched, and applied to one `ClusterState`."""
