"""The shell around the engine: HTTP, TLS, files, signals, metrics and the command line.

What belongs here is whatever touches the world outside: `server` joins the parts, `cli` is what a
person runs, `cluster` is where knowledge of a cluster comes from. What never does is a rule about
placement or quota: those are the engine's. Nothing is imported here, for a command that only
reads files should not pay for a web server.
"""
