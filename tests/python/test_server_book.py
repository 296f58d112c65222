"""The leases of a server: places, order of arrival, sessions, posts from finalizers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arenaplan.run.server.book import Book, MemoryRequest
from arenaplan.run.server.pages import ALIGNMENT, PageRange, Pages
from raising import raises

LANE, UNIT = 1024, 64


@dataclass
class Fixture:
    """A book, and the requests in the order in which they got a lease."""

    book: Book
    served: list[MemoryRequest] = field(default_factory=list)

    def request(
        self, size: int, *, session: bool = False, prepared: Iterable[int] = ()
    ) -> MemoryRequest:
        request = MemoryRequest(size, lambda: None, tuple(prepared), is_session=session)
        request.signal = lambda: self.served.append(request)
        self.book.enter(request)
        return request


def fixture(size: int = 4 * LANE, workers: int = 4, keep: int = 1 << 40) -> Fixture:
    return Fixture(Book(Pages(size), LANE, UNIT, workers, keep))


# -- places ------------------------------------------------------------------------------


def test_runs_are_placed_from_the_bottom_and_side_by_side() -> None:
    f = fixture()
    places = [f.request(size).lease for size in (1024, 512, 300, 1000)]
    assert places == [(0, 1024), (1024, 1536), (1664, 1964), (2048, 3048)]


def test_a_run_goes_where_it_is_prepared_if_that_is_free() -> None:
    f = fixture()
    first = f.request(512, prepared=[2048, 1024])
    second = f.request(512, prepared=[2048, 1024])
    third = f.request(512, prepared=[2048, 1024])
    assert [r.lease.start for r in (first, second, third) if r.lease] == [1024, 2048, 0]
    assert f.book.statistics().reused == 2


def test_a_small_memory_is_used_to_the_last_byte() -> None:
    f = fixture(size=1000 + 24 + 500 + 500)  # The second one begins at a multiple of 64.
    assert [f.request(size).lease for size in (1000, 500, 500)] == [
        (0, 1000),
        (1024, 1524),
        None,
    ]
    f = fixture(size=1000 + 24 + 500 + 12 + 500)
    assert f.request(1000).lease
    assert f.request(500).lease
    assert f.request(500).lease == (1536, 2036)


def test_no_more_runs_than_workers() -> None:
    f = fixture(workers=2)
    a, b, c = (f.request(8) for _ in range(3))
    assert (bool(a.lease), bool(b.lease), bool(c.lease)) == (True, True, False)
    f.book.leave(a)
    assert c.lease == (0, 8)
    assert f.book.statistics().waits == 1


@given(st.lists(st.integers(1, LANE), min_size=3, max_size=3), st.integers(1, LANE))
@settings(deadline=None, max_examples=50)
def test_as_many_lanes_as_workers_serve_any_mix(others: list[int], size: int) -> None:
    f = fixture(size=4 * LANE, workers=4)
    assert all(f.request(other).lease for other in others)
    assert f.request(size).lease


# -- order -------------------------------------------------------------------------------


def test_small_requests_do_not_overtake_large_ones() -> None:
    f = fixture(size=LANE + 64)
    first = f.request(128)
    large, small = f.request(1024), f.request(8)
    assert large.lease is None
    assert small.lease is None, "there is room for it, but it came later"
    f.book.leave(first)
    assert (large.lease, small.lease) == ((0, 1024), (1024, 1032))
    assert f.served == [first, large, small]


def test_a_request_that_leaves_the_queue_lets_the_next_one_through() -> None:
    f = fixture(size=LANE + 64)
    f.request(128)
    large, small = f.request(1024), f.request(8)
    f.book.refuse(large)
    assert large.lease is None
    assert small.lease
    assert f.book.statistics().refused == 1
    f.book.leave(large)
    assert f.book.statistics().waiting == 0


def test_who_got_a_lease_in_time_is_not_refused() -> None:
    f = fixture()
    request = f.request(8)
    f.book.refuse(request)
    assert request.lease
    assert f.book.statistics().refused == 0


def test_a_request_that_left_before_it_was_entered_gets_nothing() -> None:
    f = fixture()
    request = MemoryRequest(8, lambda: None)
    f.book.leave(request)
    f.book.enter(request)
    assert request.lease is None
    assert f.book.statistics().leased_bytes == 0


# -- sessions ------------------------------------------------------------------------------


def test_sessions_are_at_the_top_and_leave_room_for_the_largest_run() -> None:
    f = fixture(size=3 * LANE)
    sessions = [f.request(800, session=True) for _ in range(3)]
    assert [s.lease for s in sessions] == [(2240, 3040), (1408, 2208), None]
    assert f.request(LANE).lease == (0, LANE)


def test_a_session_that_waits_for_sessions_does_not_keep_runs_waiting() -> None:
    f = fixture(size=2 * LANE)
    first, second = f.request(LANE, session=True), f.request(LANE, session=True)
    run = f.request(LANE)
    assert (bool(first.lease), second.lease, bool(run.lease)) == (True, None, True)
    f.book.leave(first)
    assert second.lease
    assert f.served == [first, run, second]


def test_a_session_that_waits_for_runs_reserves_its_place() -> None:
    f = fixture(size=2 * LANE)
    below, above = f.request(LANE), f.request(LANE)
    session = f.request(LANE, session=True)
    later, last = f.request(LANE), f.request(8)
    f.book.leave(below)
    assert (later.lease, last.lease) == ((0, LANE), None)
    f.book.leave(above)
    assert (session.lease, last.lease) == ((LANE, 2 * LANE), None)
    f.book.leave(later)
    assert last.lease == (0, 8)


def test_a_session_does_not_wait_for_runs_that_wait() -> None:
    f = fixture(workers=1)
    f.request(LANE)
    f.request(LANE)
    assert f.request(LANE, session=True).lease


# -- the lock ------------------------------------------------------------------------------


def test_a_finalizer_may_give_back_while_its_thread_has_the_lock() -> None:
    f = fixture(workers=1)
    held, waiting = f.request(8), f.request(8)
    with f.book._held():
        f.book.leave(held)  # As the collector may do anywhere.
        assert f.book.statistics().running == 1
        assert waiting.lease is None
    assert waiting.lease, "the post was applied when the lock was let go"


def test_an_interrupted_change_is_made_up_for() -> None:
    f = fixture(workers=1)
    first, second = f.request(8), f.request(8)
    enqueue = f.book._remove
    calls = []

    def interrupted(request: MemoryRequest) -> None:
        calls.append(request)
        if len(calls) == 1:
            raise KeyboardInterrupt
        enqueue(request)

    f.book._remove = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        f.book.leave(first)
    f.book.leave(first)
    assert second.lease
    f.book.leave(second)
    assert f.book.statistics().running == 0


def test_changes_from_many_threads_are_all_applied() -> None:
    f = fixture(workers=3)

    def work() -> None:
        for k in range(300):
            event = threading.Event()
            request = MemoryRequest(64 * (1 + k % 16), event.set)
            f.book.enter(request)
            assert event.wait(60)
            assert request.lease
            f.book.leave(request)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    moment = f.book.statistics()
    assert (moment.running, moment.waiting, moment.leases) == (0, 0, 2400)


# -- pages ---------------------------------------------------------------------------------


def test_free_pages_go_back_to_the_system_from_the_top() -> None:
    pages = Pages(8 * ALIGNMENT)
    pages.bytes[:] = 1
    pages.use(PageRange(0, 8 * ALIGNMENT))
    taken = [PageRange(ALIGNMENT, ALIGNMENT + 1)]
    given = pages.give_back(taken, 3 * ALIGNMENT)
    if given == 0:
        pytest.skip("this system takes no pages back")
    assert given == 5 * ALIGNMENT, "of 8 pages less a byte that are free, at most 3 stay"
    assert pages.used_bytes == 3 * ALIGNMENT
    assert pages.bytes[: 3 * ALIGNMENT].all()
    assert not pages.bytes[3 * ALIGNMENT :].any(), "the content of those pages is lost"
    assert pages.give_back(taken, 0) == 2 * ALIGNMENT
    assert pages.bytes[ALIGNMENT] == 1, "a page with a leased byte stays"
    assert pages.give_back([], 0) == ALIGNMENT
    assert pages.used_bytes == 0


def test_memory_that_the_system_does_not_have_is_an_error() -> None:
    with raises("ArenaCommitError", match="cannot be mapped"):
        Pages(1 << 62)


# -- everything in any order -----------------------------------------------------------------


class Books(RuleBasedStateMachine):
    """Requests come and go in any order; a model of the queue says who is next."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 5 * LANE // 2
        self.f = fixture(size=self.size, workers=3, keep=LANE)
        self.alive: list[MemoryRequest] = []
        self.queue: list[MemoryRequest] = []

    @rule(size=st.integers(0, LANE), prepared=st.lists(st.integers(0, 30), max_size=3))
    def run(self, size: int, prepared: list[int]) -> None:
        self._add(self.f.request(size, prepared=[at * UNIT for at in prepared]))

    @rule(size=st.integers(0, 3 * LANE // 2))
    def session(self, size: int) -> None:
        self._add(self.f.request(min(size, self.f.book.room_for_sessions), session=True))

    def _add(self, request: MemoryRequest) -> None:
        self.alive.append(request)
        self.queue.append(request)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        request = self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))
        self.f.book.leave(request)
        self.queue = [each for each in self.queue if each is not request]

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        request = self.queue[data.draw(st.integers(0, len(self.queue) - 1))]
        self.f.book.refuse(request)
        if request.lease is None:
            self.alive.remove(request)
            self.queue.remove(request)

    @rule(keep=st.integers(0, LANE))
    def trim(self, keep: int) -> None:
        self.f.book.trim(keep)

    @invariant()
    def leases_are_apart_and_within_the_memory(self) -> None:
        self.queue = [request for request in self.queue if request.lease is None]
        leased = sorted(r.lease for r in self.alive if r.lease is not None and r.size)
        assert all(r.start >= 0 and r.stop <= self.size for r in leased)
        assert all(a.stop <= b.start for a, b in pairwise(leased))
        assert all(r.lease is None or r.lease.bytes == r.size for r in self.alive)
        assert all(r.lease is None or r.lease.start % UNIT == 0 for r in self.alive)
        moment = self.f.book.statistics()
        assert moment.leased_bytes == sum(r.bytes for r in leased)
        assert moment.leased_bytes + moment.free_bytes <= moment.peak_bytes <= self.size
        assert moment.running <= 3
        assert moment.waiting == len(self.queue)

    @invariant()
    def sessions_leave_room_for_the_largest_run(self) -> None:
        sessions = [r.lease for r in self.alive if r.is_session and r.lease is not None]
        assert all(lease.start >= LANE for lease in sessions if lease.bytes)

    @invariant()
    def runs_are_served_in_the_order_of_arrival(self) -> None:
        runs = [request for request in self.alive if not request.is_session]
        waiting = [run.lease is None for run in runs]
        assert waiting == sorted(waiting), "one that came later was served first"

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        busy = [r for r in self.alive if r.lease is not None and not r.is_session]
        assert busy or not any(not request.is_session for request in self.queue)
        if not any(r.lease is not None for r in self.alive):
            assert not self.queue

    @invariant()
    def each_lease_was_signaled_once(self) -> None:
        assert len(set(map(id, self.f.served))) == len(self.f.served)
        assert {id(r) for r in self.alive if r.lease is not None} <= set(map(id, self.f.served))


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBooks = Books.TestCase
