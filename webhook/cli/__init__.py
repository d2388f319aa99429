"""The command line: `serve` runs the webhook, everything else shows what it would do, and why.

What belongs here: reading arguments, loading what they name, printing. What never does: a rule, or
an answer that `serve` would give differently.
"""

from webhook.cli.app import main

__all__ = ["main"]
