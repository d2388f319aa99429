"""The release of held pods: decided in an order, nominated, released, and their outcome watched.

What belongs here: the controller of the leader, its writes, and what it learns from refusals and
bindings. What never does: which node is better, and who is held.
"""
