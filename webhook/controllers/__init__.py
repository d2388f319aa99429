"""Controllers: work that one replica, the holder of the Lease, does for all of them."""
