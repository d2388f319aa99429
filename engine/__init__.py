"""The rules engine: the view of a cluster, policies, decisions about pods, and quotas.

It is pure: no network, no event loop, no clock. The moment of a decision is an argument, so the
same input gives the same answer in the webhook, in a test and in a simulation. What talks to
Kubernetes, files or people belongs in `webhook`, which imports this package and never the reverse.
"""
