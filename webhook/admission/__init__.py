"""Admission reviews: the wire format, the handler with its limits, and the answers to them."""
