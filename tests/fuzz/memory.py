"""Memory of a webhook over very many hostile reviews: `python -m tests.fuzz.memory --reviews N`.

Every body is made of a recorded review, differs from all before, and goes to both paths, which
makes two reviews; one line is printed for each tenth of them. Memory is flat if the later lines say
the same.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import resource
import tempfile
import time
from pathlib import Path
from random import Random

from tests.fuzz.corpora import recorded
from tests.fuzz.mutation import mutated
from tests.fuzz.webhook import FEW, FuzzedWebhook

_MIB = 2**20


def resident() -> int:
    """Return the resident memory of this process, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def run(reviews: int, seed: int, folder: Path) -> None:
    """Send so many reviews, and print a line for each tenth of them."""
    random, originals, began = Random(seed), recorded(), time.monotonic()
    webhook = FuzzedWebhook(folder, FEW)
    understood = 0
    step = max(reviews // 10, 2)
    for sent in range(0, reviews + 1, 2):
        if sent % step == 0:
            gc.collect()
            print(
                f"{sent:>9,} reviews, {understood:>9,} understood: {resident() / _MIB:6.1f} MiB"
                f" after {time.monotonic() - began:5.0f} s",
                flush=True,
            )
        body = mutated(random.choice(originals), random, originals)
        try:
            understood += 2 * await webhook.answer(body)
        except BaseException:
            print(f"review {sent:,} of seed {seed} failed: {body!r}")
            raise
        await asyncio.sleep(0)


def main() -> None:
    """Run as many reviews as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reviews", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.disable(logging.ERROR)  # what is unreadable is logged, review by review
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(args.reviews, args.seed, Path(folder)))


if __name__ == "__main__":
    main()
