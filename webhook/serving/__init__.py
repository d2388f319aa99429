"""The process of a replica: composition of all parts, HTTP applications, TLS, readiness and logs.

Belongs here: the joining of parts, and everything that exists once for each process. Never: the
parts' own work; nothing but the command line imports this package.
"""
