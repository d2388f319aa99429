"""Kubernetes objects in JSON and YAML files: found, decoded and located, and written as lists.

What belongs here: file formats. What never does: the network.
"""
