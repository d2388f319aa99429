"""The process: one composition of all parts, its HTTP applications, TLS, logs and health."""
