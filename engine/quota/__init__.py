"""ElasticQuota at admission: bounds, verdict and reservations.

What belongs here: the arithmetic of a quota and the wording of its denial. What never does: where
reservations are stored outside this process, and how an answer travels.
"""

from engine.quota.ledger import DEFAULT_RESERVATION_SECONDS, QuotaLedger
from engine.quota.verdict import QuotaVerdict, judge

__all__ = ["DEFAULT_RESERVATION_SECONDS", "QuotaLedger", "QuotaVerdict", "judge"]
