"""Arithmetic, reason codes and readings that several plugins share; never a plugin."""
