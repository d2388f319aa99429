"""Admission reviews: wire format, handler with its limits, and the two kinds of reviews.

Belongs here: everything about AdmissionReview, and its translation into a request for placement or
quota. Never: decisions about nodes (`webhook.placement`) or reservations (`webhook.quota`).
"""
