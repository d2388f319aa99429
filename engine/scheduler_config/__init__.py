"""Configurations of kube-scheduler as policies: what `stowplan import` writes.

Belongs here: which plugins a profile enables, with which weights and args, and the policy that
ranks nodes as they do, as text with comments on what a policy cannot say. Never: what a plugin
computes.
"""

from engine.scheduler_config.imported import Imported, imported_policies

__all__ = ["Imported", "imported_policies"]
