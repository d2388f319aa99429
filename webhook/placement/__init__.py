"""Placement of pods without an admission review: policies in force, decisions, their explanations.

Belongs here: the steps from a `PlacementRequest` to a patch and an assumed pod. Never: HTTP, the
form of a review (`webhook.admission`), or which node is better (`engine`).
"""
