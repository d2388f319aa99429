"""The dashboard: pages of a live cluster or a recording over HTTP, and who may read them."""
