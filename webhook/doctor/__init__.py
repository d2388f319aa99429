"""What `stowplan doctor` looks at: a live installation, check by check.

What belongs here: one module per check, each an async function that yields findings; what they read
(`installation`, `objects`); and their table (`checkup`). What never does: printing, which is the
command line's, or any change of the cluster. The one thing sent that is not a question is a pod,
as a dry run.
"""

from webhook.doctor.checkup import CHECKS, examine
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation

__all__ = ["CHECKS", "Finding", "Installation", "Level", "examine"]
