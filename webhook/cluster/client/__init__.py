"""The API server's HTTP interface: connection, credentials and envelopes, in raw bytes.

What belongs here: requests, their failures, and proving who we are. What never does: the meaning of
an object, or when to ask again.
"""
