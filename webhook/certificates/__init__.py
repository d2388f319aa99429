"""Serving certificates that are ours to make: authorities, leaves, and their rotation in a Secret.

What belongs here: making and judging certificates (`key_pair`, `authority`: pure, the moment is
an argument), where they are kept (`secret_store`), what callers are told to trust (`bundles`), and
what the holder of the Lease does about it (`webhook.controllers.certificate_rotation`). What never
does: serving them, which is `webhook.serving.tls`. Only the pure part is imported here: the rest
speaks to an API server, whose client takes long to import.
"""

from webhook.certificates.authority import Authority, bundle_of, certificates_of
from webhook.certificates.key_pair import KeyPair, TlsError

__all__ = ["Authority", "KeyPair", "TlsError", "bundle_of", "certificates_of"]
