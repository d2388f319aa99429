from __future__ import annotations

from pathlib import Path

from engine.model.elastic_quota import QuotaKey
from engine.model.hold import QueuedReason
from engine.model.time import SECOND, Micros
from engine.quota.queueing import BorrowingQuota, Lack, QuotaWait, QuotaWaits
from tests.webhook.controllers.release.controller_world import running_world
from webhook.controllers.release.conditions import Place, Wait
from webhook.controllers.release.quota_queue import QuotaPace

TEAM: QuotaKey = ("shop", "scheduling.x-k8s.io", "team")
BATCH: QuotaKey = ("mail", "scheduling.x-k8s.io", "batch")


class Queue:
    """A queue of one quota, from which pods are released or deleted."""

    def __init__(self, pods: int) -> None:
        self.seconds = 0.0
        self.queue = [f"shop/{number}" for number in range(pods)]
        self.pace = QuotaPace(lambda: Micros(int((1_000 + self.seconds) * SECOND)))
        self.cycle(0)

    def cycle(self, after: float, *decided: str, reason: QueuedReason | None = None) -> None:
        self.seconds += after
        waits = {
            key: QuotaWait(
                reason or QueuedReason.WAITING_FOR_QUOTA,
                TEAM,
                position,
                len(self.queue),
                is_within_min=False,
                since=Micros(0),
                lacks=(Lack("cpu", 2000, 1000, None),),
                blocked_by=(BorrowingQuota(BATCH, "cpu", 12000),),
            )
            for position, key in enumerate(self.queue, 1)
        }
        self.pace.cycle_ended(QuotaWaits(waits), decided)

    def release(self, after: float) -> None:
        """Release the first pod."""
        self.cycle(after, self.queue.pop(0))


def test_a_pod_says_its_place_in_its_quota_what_it_lacks_and_who_has_it() -> None:
    world = Queue(3)
    assert world.pace.condition("shop/1") == Wait(
        QueuedReason.WAITING_FOR_QUOTA,
        "needs cpu 2, 1 free; mail/batch borrows cpu 12",
        Place(2, 3, "shop/team"),
    )
    assert world.pace.condition("shop/9") is None


def test_after_five_releases_it_says_how_long_it_takes() -> None:
    world = Queue(9)
    for _ in range(4):
        world.release(30)
    world.cycle(30)
    assert world.pace.interval(TEAM) is None
    world.release(0)
    # Five in 150 s: one each 30 s; the 3rd of the four that are left waits for 90.
    assert world.pace.interval(TEAM) == 30 * SECOND
    wait = world.pace.condition("shop/7")
    assert wait is not None
    assert (wait.place, wait.eta) == (Place(3, 4, "shop/team"), 90 * SECOND)


def test_pods_that_did_not_wait_and_pods_that_are_deleted_do_not_count() -> None:
    world = Queue(9)
    for number in range(8):
        world.cycle(30, f"shop/at-once-{number}")
        world.queue.pop(0)  # deleted: nobody has decided it
        world.cycle(0)
    assert world.pace.interval(TEAM) is None


def test_nobody_guesses_how_long_others_take() -> None:
    world = Queue(9)
    for _ in range(5):
        world.release(30)
    world.cycle(0, reason=QueuedReason.WAITING_FOR_CAPACITY)
    wait = world.pace.condition("shop/7")
    assert wait is not None
    assert wait.eta is None
    assert world.pace.first_waits() == {}


def test_the_first_of_a_quota_speaks_for_it() -> None:
    world = Queue(3)
    assert world.pace.first_waits()[TEAM].position == 1


async def test_a_pod_says_it_in_its_condition(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        world.create("other", "mail", "3", nodeName="a")
        world.quota("mail", minimum=1)
        world.quota("shop", minimum=1)
        for name in ("fits", "first", "second"):
            world.queue(name)
        replica = world.replica()
        await replica.cycle()
        world.seconds += 2
        await replica.cycle()
        assert world.releases() == {"fits"}
        (condition,) = world.stored("second")["status"]["conditions"]
        assert condition["reason"] == "WaitingForQuota"
        assert condition["message"] == (
            "2nd of 2 in shop/quota; needs cpu 1, 0 free; mail/quota borrows cpu 2"
        )
