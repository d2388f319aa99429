"""Documents that people write: YAML trees, the place of every part, validation with diagnostics.

Policies, settings, quotas and recorded clusters are read through here. What never belongs here is
the meaning of any kind of document.
"""
