"""The embedded example: a small recorded cluster, a policy, and pods to submit.

What belongs here: data, as `kubectl` prints and people write it, with its arithmetic in comments.
What never does: code.
"""
