"""What is known of bindings on their way, and what they allow."""

from __future__ import annotations

import pytest

from engine.binding import (
    BindingCycle,
    BindingDecision,
    BindingLedger,
    BindingTicket,
    Landing,
    decide_binding,
    decide_in_haste,
    decide_unseen,
)
from engine.binding.ledger import MOST_REQUESTS, Margin
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.view import ClusterState, ClusterView
from tests.engine.binding.worlds import NOW, by_rank, cluster, node, pod, request


def margin(*waiting: str) -> Margin:
    """Return the margin for pods that wait, by the cores they request."""
    made = Margin()
    for number, cpu in enumerate(waiting):
        made.waits(f"shop/w{number}", pod(f"w{number}", cpu=cpu).shape)
    return made


def nodes(large: int) -> ClusterView:
    """Return a node of 4 cores, the first, and others of 8."""
    others = [node(f"large-{number}", cores=8) for number in range(large)]
    return cluster(node("first"), *others).view()


def may_take(found: Margin, view: ClusterView, cpu: str = "1") -> bool:
    return found.for_pod(pod(cpu=cpu), view)(view.rows["first"])


def test_a_node_keeps_room_for_a_pod_that_few_nodes_would_take() -> None:
    # 4 cores less 1 leave 3: enough for 3, not for 4, which it would take now.
    assert may_take(margin("3"), nodes(0))
    assert not may_take(margin("4"), nodes(0))
    assert may_take(margin("5"), nodes(0))  # which does not go there anyway


@pytest.mark.parametrize(("large", "expected"), [(30, False), (31, True)])
def test_a_pod_that_32_nodes_would_take_keeps_no_room(large: int, expected: bool) -> None:  # noqa: FBT001
    assert may_take(margin("4"), nodes(large)) is expected  # the first node is one of them


def test_of_several_pods_the_one_with_the_fewest_nodes_counts() -> None:
    # Of 40 nodes only the first has 4 cores and 8 GiB free: the others are filled up to 3 cores.
    filled = [pod(f"on-{number}", cpu="5", on=f"large-{number}") for number in range(40)]
    others = [node(f"large-{number}", cores=8) for number in range(40)]
    view = cluster(node("first"), *others, *filled).view()
    assert may_take(margin("3"), view)
    assert not may_take(margin("3", "3500m"), view)


SCOPE = Scope()
A_MINUTE = 60


def after(seconds: float) -> Micros:
    return Micros(NOW + int(seconds * SECOND))


class Desk:
    """A ledger that leads, on nodes a and b of 4 cores, of which b is the better one."""

    def __init__(self, *waiting: str, last_answer_at: Micros | None = None) -> None:
        self.state: ClusterState = cluster(node("a", 0), node("b", 100))
        self.ledger = BindingLedger(self.state, scope=SCOPE)
        self.ledger.lead_begins(after(-A_MINUTE), last_answer_at)
        for name in waiting:
            self.see(name)

    def see(self, name: str, on: str = "", *, at: float = 0) -> Landing | None:
        seen = pod(name, on=on)
        self.state.set_pod(seen, seen_at=after(at))
        return self.ledger.saw(seen, after(at))

    def ask(self, name: str, to: str = "a", *, at: float = 0, known: bool = True) -> BindingTicket:
        return self.ledger.asked(f"shop/{name}", name, to, pod(name) if known else None, after(at))

    def cycle(self, ticket: BindingTicket, *, at: float = 0) -> BindingCycle:
        view, limits = self.ledger.view(ticket), self.ledger.limits(ticket, after(at))
        return BindingCycle(
            request(ticket.uid), ticket.scheduler_node, view, after(at), SCOPE, limits=limits
        )

    def decide(self, ticket: BindingTicket, *, at: float = 0) -> BindingDecision:
        return decide_binding(self.cycle(ticket, at=at), by_rank())

    def moved(self, name: str, *, at: float = 0) -> BindingTicket:
        """Return the ticket of a pod that was moved from a to b."""
        ticket = self.ask(name, at=at)
        decision = self.decide(ticket, at=at)
        assert decision.node_name == "b"
        self.ledger.decided(ticket, decision, after(at))
        return ticket

    def denied_on_full_b(self, name: str) -> None:
        """Fill b with 4 pods, full-b0 to full-b3, and write a denial of one more there."""
        for number in range(4):
            self.see(f"full-b{number}", "b")
        self.denied(name, "b")

    def denied(self, name: str, to: str, *, at: float = 0) -> None:
        """Write a denial of a pod on a node that is full."""
        now = after(at)
        self.ledger.lead_begins(now, None)  # so that the scheduler may not know of moves
        ticket = self.ask(name, to, at=at)
        denial = decide_in_haste(self.cycle(ticket, at=at))
        assert denial.action == "Deny"
        self.ledger.decided(ticket, denial, now)
        self.ledger.answered(ticket, now)

    def leave(self, name: str) -> None:
        self.state.delete_pod(f"shop/{name}")
        self.ledger.gone(f"shop/{name}")

    def counted(self) -> dict[str, int]:
        """Return the pods that count on each node."""
        view = self.state.view()
        pods = view.amount(view.sums[0], "pods")
        return {name: int(pods[row]) for name, row in view.rows.items()}


def test_a_binding_counts_from_when_it_is_asked_about() -> None:
    desk = Desk("p")
    desk.ask("p")
    assert desk.counted() == {"a": 1, "b": 0}


def test_a_moved_pod_counts_on_both_nodes_until_it_is_seen() -> None:
    desk = Desk("p")
    ticket = desk.moved("p")
    desk.ledger.answered(ticket, NOW)
    assert desk.counted() == {"a": 1, "b": 1}
    assert desk.see("p", "b") is Landing.AS_ANSWERED
    assert desk.counted() == {"a": 0, "b": 1}
    assert desk.ledger.is_settled(NOW)


def test_a_pod_that_is_decided_counts_nowhere_for_its_own_decision() -> None:
    desk = Desk("p")
    view = desk.ledger.view(desk.ask("p"))
    assert not view.assumed.any()


def test_a_denied_pod_counts_no_more_once_the_denial_is_written() -> None:
    desk = Desk("p", "q")
    for number in range(4):
        desk.see(f"full-a{number}", "a")
        desk.see(f"full-b{number}", "b")
    desk.ledger.lead_begins(NOW, None)  # so that the scheduler may not know of moves
    ticket = desk.ask("p")
    decision = desk.decide(ticket)
    assert decision.action == "Deny"
    desk.ledger.decided(ticket, decision, NOW)
    assert desk.counted()["a"] == 5
    desk.ledger.answered(ticket, NOW)
    assert desk.counted()["a"] == 4


def test_a_denied_pod_that_is_bound_after_all_has_escaped_and_stops_moves() -> None:
    desk = Desk("p")
    desk.denied_on_full_b("p")
    assert desk.see("p", "b") is Landing.UNASKED
    assert desk.ledger.counters.escaped == 1
    assert not desk.ledger.may_move(after(9))


def test_a_lost_answer_leaves_the_pod_on_both_nodes_and_stops_moves_for_a_while() -> None:
    desk = Desk("p", "q")
    ticket = desk.moved("p")
    desk.ledger.answer_lost(ticket, NOW)
    assert desk.counted() == {"a": 1, "b": 1}
    assert not desk.ledger.may_move(after(9))
    assert desk.ledger.may_move(after(10))
    assert desk.see("p", "a") is Landing.ELSEWHERE
    assert desk.ledger.counters.lost == desk.ledger.counters.escaped == 1


def test_a_pod_whose_answer_was_lost_counts_no_more_where_it_is_denied_later() -> None:
    desk = Desk("p")
    desk.ledger.answer_lost(desk.ask("p", "a"), NOW)
    desk.denied_on_full_b("p")
    assert desk.counted() == {"a": 1, "b": 4}


def test_a_lost_answer_counts_until_its_request_has_ended_however_often_the_pod_is_denied() -> None:
    desk = Desk("p")
    desk.ledger.answer_lost(desk.ask("p", "a"), NOW)
    for number in range(4):
        desk.see(f"full-a{number}", "a")
    desk.denied("p", "a", at=A_MINUTE - 1)
    assert desk.counted() == {"a": 5, "b": 0}
    desk.ledger.expire(after(A_MINUTE + 1), after(A_MINUTE + 1))
    assert desk.counted() == {"a": 4, "b": 0}
    assert desk.ledger.is_settled(after(A_MINUTE + 1))


def test_a_binding_that_nobody_asked_about_stops_moves_until_none_has_for_a_while() -> None:
    desk = Desk("p", "q")
    assert desk.see("p", "a") is Landing.UNASKED
    assert desk.see("q", "a", at=8) is Landing.UNASKED
    assert not desk.ledger.may_move(after(17))
    assert desk.ledger.may_move(after(18))


def test_a_pod_that_the_webhook_is_never_asked_about_breaks_no_promise() -> None:
    desk = Desk()
    for on in ("", "a"):
        excluded = pod("p", on=on, metadata={"namespace": "kube-system"})
        desk.state.set_pod(excluded, seen_at=NOW)
        assert desk.ledger.saw(excluded, NOW) is None
    assert desk.ledger.may_move(NOW)


def test_a_pod_asked_about_twice_counts_wherever_it_may_end() -> None:
    desk = Desk("p")
    desk.moved("p")
    again = desk.ask("p", "a")
    assert desk.counted() == {"a": 1, "b": 1}
    decision = desk.decide(again)
    desk.ledger.decided(again, decision, NOW)
    assert desk.see("p", "b") is Landing.AS_ANSWERED


def test_a_pod_counts_on_each_node_that_it_was_tried_on_however_many() -> None:
    # A scheduler that fails again and again tries ten nodes a minute, and the pod may be moved each
    # time.
    names = [f"n{number:02}" for number in range(20)]
    desk = Desk("p0")
    for name in names:
        desk.state.set_node(node(name))
        desk.ledger.answer_lost(desk.ask("p0", name), NOW)
    assert {name for name, count in desk.counted().items() if count} == set(names)
    desk.ledger.expire(after(A_MINUTE + 1), after(A_MINUTE + 1))
    assert not any(desk.counted().values())


def test_a_pod_that_was_denied_counts_while_another_call_about_it_is_not_answered() -> None:
    desk = Desk("p")
    for number in range(4):
        desk.see(f"b{number}", "b")
    desk.ledger.lead_begins(NOW, None)  # so that the scheduler is not believed
    first, second = desk.ask("p", "b"), desk.ask("p", "b")
    for ticket, counted in ((first, 5), (second, 4)):
        denial = decide_in_haste(desk.cycle(ticket))
        desk.ledger.decided(ticket, denial, NOW)
        desk.ledger.answered(ticket, NOW)
        assert desk.counted()["b"] == counted


def test_a_failed_binding_counts_until_its_request_has_surely_ended() -> None:
    desk = Desk("p")
    desk.moved("p")
    desk.ledger.expire(after(100), after(A_MINUTE))  # what came since may not be seen
    assert desk.counted() == {"a": 1, "b": 1}
    desk.ledger.expire(after(100), after(A_MINUTE + 1))
    assert desk.counted() == {"a": 0, "b": 0}


def test_a_pod_that_is_gone_counts_no_more() -> None:
    desk = Desk("p")
    desk.moved("p")
    desk.state.delete_pod("shop/p")
    desk.ledger.gone("shop/p")
    assert desk.counted() == {"a": 0, "b": 0}
    assert desk.ledger.is_settled(NOW)


def test_a_pod_that_is_seen_late_counts_from_then() -> None:
    desk = Desk("q")
    desk.ask("p", "b", known=False)
    assert desk.counted() == {"a": 0, "b": 0}
    assert desk.decide(desk.ask("q")).reason == "NoMargin"  # b is to be left alone
    desk.see("p")
    assert desk.counted()["b"] == 1


def test_a_call_about_an_earlier_pod_of_that_name_changes_nothing() -> None:
    desk = Desk("p")
    desk.moved("p")
    desk.ledger.asked("shop/p", "old", "a", None, NOW)
    assert desk.counted() == {"a": 1, "b": 1}


def test_a_decision_on_an_earlier_pod_of_that_name_leaves_the_later_one_counted() -> None:
    desk = Desk("p")
    desk.ledger.answered(desk.moved("p"), NOW)
    late = desk.ledger.asked("shop/p", "old", "a", None, NOW)
    desk.ledger.view(late)
    decision = decide_unseen("a", desk.ledger.limits(late, NOW))
    desk.ledger.decided(late, decision, NOW)
    assert desk.counted() == {"a": 1, "b": 1}


def test_a_pod_that_was_created_again_counts_where_its_own_binding_goes() -> None:
    desk = Desk("p")
    earlier = desk.ask("p", "a")
    again = pod("p", metadata={"uid": "again"})
    desk.state.set_pod(again, seen_at=NOW)
    desk.ledger.saw(again, NOW)
    desk.ledger.asked("shop/p", "again", "b", again, NOW)
    desk.ledger.answer_lost(earlier, NOW)
    assert desk.counted() == {"a": 0, "b": 1}


def test_a_call_about_a_bound_pod_changes_nothing() -> None:
    desk = Desk()
    desk.see("p", "a")
    bound = pod("p", on="a")
    desk.ledger.asked("shop/p", "p", "b", bound, NOW)
    assert desk.ledger.is_settled(NOW)


# The room that is left.


def test_a_move_leaves_room_for_one_more_that_waits() -> None:
    desk = Desk("p", "q", "r")  # of a core each, and 4 cores on b
    for name in ("x", "y"):
        desk.see(name, "b")
    assert desk.decide(desk.ask("p")).node_name == "b"
    desk.see("z", "b")
    assert desk.decide(desk.ask("p")).reason == "NoMargin"


def test_a_move_leaves_room_for_one_that_was_denied() -> None:
    desk = Desk("p", "q")  # of a core each, and 4 cores on b
    desk.denied_on_full_b("p")
    desk.leave("full-b0")
    assert desk.decide(desk.ask("q"), at=10).reason == "NoMargin"
    desk.leave("full-b1")
    assert desk.decide(desk.ask("q"), at=10).node_name == "b"


def test_a_move_leaves_room_for_one_that_requests_as_much_and_is_like_no_other() -> None:
    desk = Desk("p")
    for name in ("x", "y", "z"):
        desk.see(name, "b")
    limited = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
    other = pod("q", containers=[limited])
    desk.state.set_pod(other, seen_at=NOW)
    desk.ledger.saw(other, NOW)
    assert desk.decide(desk.ask("p")).reason == "NoMargin"


def test_who_waits_no_longer_needs_no_room() -> None:
    desk = Desk("p", "q")
    for name in ("x", "y", "z"):
        desk.see(name, "b")
    assert desk.decide(desk.ask("p")).reason == "NoMargin"
    desk.ledger.gone("shop/q")
    assert desk.decide(desk.ask("p")).node_name == "b"


def test_nobody_else_needs_the_room_of_the_only_one_that_waits() -> None:
    desk = Desk("p")
    for name in ("x", "y", "z"):
        desk.see(name, "b")
    assert desk.decide(desk.ask("p")).node_name == "b"


def test_a_pod_that_would_not_fit_anyway_needs_no_room() -> None:
    desk = Desk("p")
    large = pod("large", cpu="5")
    desk.state.set_pod(large, seen_at=NOW)
    desk.ledger.saw(large, NOW)
    assert desk.decide(desk.ask("p")).node_name == "b"


# Leaders.


def test_the_next_leader_moves_nothing_until_what_the_last_one_answered_has_ended() -> None:
    desk = Desk("p", last_answer_at=NOW)
    assert not desk.ledger.may_move(after(A_MINUTE - 1))
    assert desk.ledger.may_move(after(A_MINUTE))


def test_who_led_for_a_moment_does_not_know_that_the_one_before_has_nothing_on_its_way() -> None:
    desk = Desk(last_answer_at=NOW)
    desk.ledger.lead_ends()
    assert not desk.ledger.is_settled(after(A_MINUTE - 1))
    assert desk.ledger.is_settled(after(A_MINUTE))


def test_a_leader_knows_whether_the_next_one_would_have_to_know_of_a_move() -> None:
    desk = Desk("p", "q")
    desk.ask("q")
    assert not desk.ledger.has_moves_on_their_way
    desk.moved("p")
    desk.ledger.lead_ends()
    assert desk.ledger.has_moves_on_their_way
    desk.see("p", "b")
    assert not desk.ledger.has_moves_on_their_way


@pytest.mark.parametrize("ends", [False, True])
def test_who_leads_no_more_moves_nothing(ends: bool) -> None:  # noqa: FBT001
    desk = Desk("p")
    if ends:
        desk.ledger.lead_ends()
    assert desk.ledger.may_move(NOW) is not ends


def test_the_scheduler_is_not_believed_where_a_pod_was_moved_of_late() -> None:
    desk = Desk("p", "q")
    ticket = desk.moved("p")
    desk.ledger.answered(ticket, NOW)
    asked = desk.ask("q", "b")
    assert desk.ledger.limits(asked, NOW).disturbed == {"b"}
    desk.see("p", "b", at=1)
    assert desk.ledger.limits(asked, after(5)).disturbed == {"b"}
    assert desk.ledger.limits(asked, after(7)).disturbed == set()


def test_decisions_are_counted_by_action_and_reason() -> None:
    desk = Desk("p")
    desk.moved("p")
    assert desk.ledger.counters.decided == {("Move", "BetterNode"): 1}


def test_of_very_many_requests_to_bind_a_pod_no_more_are_kept_and_none_moves_it() -> None:
    desk = Desk("p")
    for number in range(MOST_REQUESTS - 1):
        desk.ask("p", f"node-{number}")
    known = desk.ask("p", "a")
    assert desk.ledger.limits(known, NOW).may_move
    for number in range(2):
        beyond = desk.ask("p", f"beyond-{number}")
        assert not desk.ledger.limits(beyond, NOW).may_move
    assert desk.counted() == {"a": 1, "b": 0}
    beyond = desk.ask("p", "b")
    decision = desk.decide(beyond)
    assert decision.action == "Keep"
    desk.ledger.decided(beyond, decision, NOW)
    desk.ledger.answered(beyond, NOW)
    assert desk.counted() == {"a": 1, "b": 0}
    desk.ledger.expire(after(A_MINUTE + 2), after(A_MINUTE + 1))
    assert desk.counted() == {"a": 0, "b": 0}
