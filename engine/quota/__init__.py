"""ElasticQuota at admission: bounds, verdicts and reservations.

What belongs here: the arithmetic of a quota, the wording of its denial, what reservations are and
when they are over. What never does: where they are stored, and how an answer travels.
"""

from engine.quota.batch import Asked, Judgement, judge_batch, needs
from engine.quota.book import DEFAULT_RESERVATION_SECONDS, Patience, QuotaBook
from engine.quota.reservations import Reservation, Reservations
from engine.quota.verdict import QuotaVerdict, judge

__all__ = [
    "DEFAULT_RESERVATION_SECONDS",
    "Asked",
    "Judgement",
    "Patience",
    "QuotaBook",
    "QuotaVerdict",
    "Reservation",
    "Reservations",
    "judge",
    "judge_batch",
    "needs",
]
