"""Admission reviews: wire format, handler with its limits, reviews of pods, quotas and policies.

Belongs here: everything about AdmissionReview, and its translation into a request for placement or
quota. Never: decisions about nodes (`webhook.placement`) or reservations (`webhook.quota`).
"""
