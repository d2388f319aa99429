"""A Kubernetes API server in memory, for tests that need a cluster that answers back.

Here belongs what a real API server does on the wire: versions, lists in pages, watches, conflicts,
discovery, its errors, and the faults a client must survive. What objects mean (scheduling,
controllers, admission, schemas, garbage collection) never does: a test plays those parts itself.
"""

from __future__ import annotations

from tests.fake_api_server.server import FakeApiServer, Request, fake_api_server
from tests.fake_api_server.statuses import ApiFault

__all__ = ["ApiFault", "FakeApiServer", "Request", "fake_api_server"]
