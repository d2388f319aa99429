"""Serving certificates of our own: authorities, leaves, and the Secret that holds them.

What belongs here: making and checking certificates (`key_pair`, `authority`: pure, the moment is an
argument), their Secret (`secret_store`, `secret_source`), and the authorities that callers trust
(`bundles`). What never does: serving them (`webhook.serving.tls`) or their rotation
(`webhook.controllers.certificate_rotation`). Only the pure part is imported here: the rest needs
the API server's client, whose import takes long.
"""

from webhook.certificates.authority import Authority, KeyPair, TlsError, bundle_of, certificates_of

__all__ = ["Authority", "KeyPair", "TlsError", "bundle_of", "certificates_of"]
