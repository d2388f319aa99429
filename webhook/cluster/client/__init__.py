"""The API server as a client sees it: connection, credentials, envelopes, backoff."""
