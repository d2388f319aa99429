"""The command line: `serve` runs the webhook, all other commands show its decisions and reasons.

What belongs here: reading arguments, loading the files they name, printing. What never does: a
rule, or an answer that `serve` would give differently.
"""

from webhook.cli.entry_point import main

__all__ = ["main"]
