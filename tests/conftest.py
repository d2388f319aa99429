"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow or busy machine must not turn a true property into a failure.
settings.register_profile("stowplan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stowplan")
