"""Gangs: which pods belong together, what a gang waits for, and its phases."""
