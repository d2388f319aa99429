"""The shell around the engine: HTTP, TLS, files, signals, metrics and the command line.

Belongs here: whatever touches the world outside; `serving` joins the parts. Never: a rule about
placement or quota, which belongs to the engine. Nothing is imported here: a command that only reads
files should not load a web server.
"""
