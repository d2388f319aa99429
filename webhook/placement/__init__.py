"""Placement of pods: policies in force, decisions, and their explanations, without HTTP."""
