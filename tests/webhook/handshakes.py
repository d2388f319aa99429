"""TLS handshakes made in memory, and what they show."""

from __future__ import annotations

import ssl

from cryptography import x509


def shaken_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Return the client's side of a handshake made in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (here, there):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    return here


def served_leaf(server: ssl.SSLContext) -> x509.Certificate:
    """Return what a server shows to anybody."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    der = shaken_hands(server, blind, "any").getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)
