"""Recordings of live clusters: what is kept of each object, and anonymized names."""
