"""LowRiskOverCommitment: prefer nodes where over-committed limits are unlikely to be used."""

from __future__ import annotations

from engine.plugins.low_risk_over_commitment.plugin import PLUGIN

__all__ = ["PLUGIN"]
