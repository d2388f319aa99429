"""Usage of nodes and pods, from `metrics.k8s.io` and Prometheus."""
