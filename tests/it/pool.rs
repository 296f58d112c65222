//! Pools: sizes, order, the cap, and every way out of a lease.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use arenaplan::arena::{ArenaAllocator, ArenaBlock, SystemAllocator};
use arenaplan::base::Alignment;
use arenaplan::pack::Space;
use arenaplan::pool::{PoolBuilder, Rounding};
use arenaplan::{
    ArenaPool, DType, Error, Graph, Lease, Memories, Node, Planner, Program, Result, Value,
    ValueId, ValueKind,
};
use proptest::prelude::*;

/// Returns the graph `y = x + 1` over `bytes` bytes each.
fn increment(bytes: u64) -> (Graph, ValueId, ValueId) {
    let mut builder = Graph::builder(format!("{bytes}"));
    let value = |name, kind| Value::new(name, kind, DType::UINT8, [bytes]).unwrap();
    let x = builder.add_value(value("x", ValueKind::Input));
    let y = builder.add_value(value("y", ValueKind::Activation));
    builder.add_node(Node::new("increment", "AddOne").reads([x]).writes([y]));
    builder.add_output(y);
    (builder.build().unwrap(), x, y)
}

/// Returns a program whose arena has `bytes` bytes, an even number of multiples of 64.
fn program(bytes: u64) -> Arc<Program> {
    let (graph, ..) = increment(bytes / 2);
    let plan = Planner::new().plan(&graph).unwrap();
    assert_eq!(plan.arena_bytes(), bytes);
    Arc::new(plan.program(&graph).unwrap())
}

/// Returns a pool without rounding.
fn pool(cap: u64) -> ArenaPool {
    ArenaPool::builder().cap(cap).rounding(Rounding::EXACT).build().unwrap()
}

fn address(lease: &Lease) -> usize {
    lease.value(ValueId::new(0)).unwrap().as_ptr().addr()
}

// -- sizes -----------------------------------------------------------------------------

/// The numbers of `MXNet`'s managers, by their formulas.
#[test]
fn r37_sizes_are_rounded_as_by_mxnet_to_the_byte() {
    let naive = Rounding::pages(4096, 2 << 20).unwrap();
    for (bytes, rounded) in [
        (0, 0),
        (1, 4096),
        (4097, 8192),
        (65_537, 69_632),
        (2_097_152, 2_097_152),
        (2_097_153, 4_194_304),
        (10_000_000, 10_485_760),
    ] {
        assert_eq!(naive.round(bytes), Ok(rounded), "{bytes}");
    }
    let round = Rounding::powers(4096, 24).unwrap();
    for (bytes, rounded) in [
        (0, 0),
        (1, 4096),
        (65_537, 131_072),
        (1_048_577, 2_097_152),
        (16_777_217, 33_554_432),
        (33_554_433, 50_331_648),
        (100_000_000, 100_663_296),
        // More than 16 GiB, where theirs leaves its list of buckets.
        ((16 << 30) + 1, (16 << 30) + (16 << 20)),
    ] {
        assert_eq!(round.round(bytes), Ok(rounded), "{bytes}");
    }
    let round = Rounding::powers(4096, 20).unwrap();
    for (bytes, rounded) in [(2_097_153, 3_145_728), (10_000_000, 10_485_760)] {
        assert_eq!(round.round(bytes), Ok(rounded), "{bytes}");
    }
}

#[test]
fn rules_of_rounding_that_cannot_be_are_refused() {
    for rule in [
        Rounding::pages(0, 1),
        Rounding::pages(1, 0),
        Rounding::powers(4097, 24),
        Rounding::powers(4096, 11),
        Rounding::powers(4096, 63),
    ] {
        assert!(matches!(rule, Err(Error::InvalidOption { option: "rounding", .. })));
    }
    for rule in [Rounding::DEFAULT, Rounding::powers(4096, 24).unwrap()] {
        assert!(matches!(rule.round(u64::MAX), Err(Error::SizeOverflow { .. })));
    }
    assert_eq!(Rounding::EXACT.round(u64::MAX), Ok(u64::MAX));
}

#[test]
fn a_pool_without_room_for_anything_is_refused() {
    for cap in [0, u64::MAX] {
        let refused = ArenaPool::builder().cap(cap).build();
        assert!(matches!(refused, Err(Error::InvalidOption { option: "cap", .. })));
    }
}

// -- blocks ----------------------------------------------------------------------------

#[test]
fn the_block_that_was_returned_last_is_leased_first() {
    let (pool, program) = (pool(1 << 20), program(1024));
    let [a, b] = [0, 1].map(|_| pool.try_lease(&program).unwrap());
    let (first, second) = (address(&a), address(&b));
    drop(a);
    drop(b);
    let [a, b] = [0, 1].map(|_| pool.try_lease(&program).unwrap());
    assert_eq!([address(&a), address(&b)], [second, first]);
    let numbers = pool.statistics();
    assert_eq!((numbers.leases, numbers.allocated, numbers.reused), (4, 2, 2));
    assert_eq!((numbers.leased_bytes, numbers.free_bytes, numbers.peak_bytes), (2048, 0, 2048));
}

#[test]
fn a_block_serves_requests_of_three_quarters_of_its_size() {
    let pool = pool(1 << 20);
    drop(pool.try_lease(&program(4096)).unwrap());
    for (bytes, reused) in [(4096, 1), (3072, 2), (2944, 2), (4224, 2)] {
        let lease = pool.try_lease(&program(bytes)).unwrap();
        assert_eq!(pool.statistics().reused, reused, "{bytes}");
        // Blocks of other sizes would be better next time.
        drop(lease);
        pool.trim(0);
        drop(pool.try_lease(&program(4096)).unwrap());
        let numbers = pool.statistics();
        assert_eq!((numbers.leased_bytes, numbers.free_bytes), (0, 4096));
        assert_eq!(numbers.reused, reused);
    }
}

#[test]
fn blocks_that_are_free_for_the_longest_time_make_room() {
    let pool = pool(4096);
    let sizes = [1024, 2048, 640];
    let leases = sizes.map(|bytes| pool.try_lease(&program(bytes)).unwrap());
    drop(leases);
    assert_eq!(pool.statistics().free_bytes, 3712);
    // 384 bytes are left: the first and the second block go.
    let large = pool.try_lease(&program(3072)).unwrap();
    let numbers = pool.statistics();
    assert_eq!((numbers.evicted, numbers.free_bytes, numbers.peak_bytes), (2, 640, 3712));
    drop(large);
    assert_eq!(pool.trim(3100), 640);
    assert_eq!(pool.trim(3072), 0);
    assert_eq!(pool.trim(0), 3072);
    assert_eq!(pool.statistics().free_bytes, 0);
}

#[test]
fn a_pool_keeps_no_more_free_bytes_than_it_may() {
    let pool = ArenaPool::builder().cap(1 << 20).keep(5000).build().unwrap();
    let leases = [4096, 4096, 8192].map(|bytes| pool.try_lease(&program(bytes)).unwrap());
    drop(leases);
    let numbers = pool.statistics();
    assert_eq!((numbers.free_bytes, numbers.evicted), (0, 3));
    drop(pool.try_lease(&program(4096)).unwrap());
    assert_eq!(pool.statistics().free_bytes, 4096);
}

#[test]
fn a_larger_block_than_asked_for_is_not_in_the_way_of_other_spaces() {
    let mut builder = Graph::builder("of two spaces");
    let value = |name, kind, bytes: u64| Value::new(name, kind, DType::UINT8, [bytes]).unwrap();
    let x = builder.add_value(value("x", ValueKind::Input, 1536));
    let y = builder.add_value(value("y", ValueKind::Activation, 2560));
    builder.add_node(Node::new("pad", "Pad").reads([x]).writes([y]));
    builder.add_output(y);
    let graph = builder.build().unwrap();
    let spaces = [("small", 1536), ("large", 2560)]
        .map(|(name, bytes)| Space::new(name).with_capacity(bytes).with_cost(1));
    let memories = Memories::new(spaces.to_vec()).unwrap();
    let plan = Planner::new().memories(&memories).plan(&graph).unwrap();
    let program_of_two = Arc::new(plan.program(&graph).unwrap());

    let pool = pool(4096);
    drop(pool.try_lease(&program(2048)).unwrap());
    // The block of 2,048 bytes would do for `x`, and there would be no room for `y`.
    let lease = pool.try_lease(&program_of_two).unwrap();
    let numbers = pool.statistics();
    assert_eq!((numbers.leased_bytes, numbers.free_bytes, numbers.evicted), (4096, 0, 1));
    drop(lease);
    let _small = pool.try_lease(&program(1536)).unwrap();
    assert!(matches!(pool.try_lease(&program_of_two), Err(Error::PoolBusy { .. })));
    assert_eq!(pool.statistics().leased_bytes, 1536);
}

#[test]
fn spaces_have_blocks_of_their_own() {
    let (graph, x, y) = increment(1024);
    let spaces = ["fast", "slow"].map(|name| Space::new(name).with_capacity(1024).with_cost(1));
    let memories = Memories::new(spaces.to_vec()).unwrap();
    let plan = Planner::new().memories(&memories).plan(&graph).unwrap();
    assert_eq!(plan.arenas().len(), 2);
    let program = Arc::new(plan.program(&graph).unwrap());
    let pool = pool(4096);
    for round in 0..3 {
        let mut lease = pool.try_lease(&program).unwrap();
        lease.value_mut(x).unwrap().fill(round);
        lease.run(|_, memory| memory.elementwise(|[x]: [u8; 1]| x + 1)).unwrap();
        assert_eq!(lease.value(y).unwrap(), [round + 1; 1024]);
        assert_eq!(lease.value(x).unwrap(), [round; 1024]);
    }
    let numbers = pool.statistics();
    assert_eq!((numbers.allocated, numbers.reused, numbers.free_bytes), (2, 4, 2048));
}

#[test]
fn a_program_without_bytes_needs_no_block() {
    let mut builder = Graph::builder("nothing");
    let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [0]).unwrap());
    builder.add_output(x);
    let graph = builder.build().unwrap();
    let plan = Planner::new().plan(&graph).unwrap();
    let program = Arc::new(plan.program(&graph).unwrap());
    let pool = pool(1);
    let lease = pool.try_lease(&program).unwrap();
    assert!(lease.value(x).unwrap().is_empty());
    assert_eq!((pool.statistics().allocated, pool.statistics().leased_bytes), (0, 0));
}

#[test]
fn returned_bytes_are_cleared_on_request() {
    for clears in [false, true] {
        let mut builder = ArenaPool::builder().cap(1 << 20);
        if clears {
            builder = builder.clear_returned();
        }
        let (pool, program) = (builder.build().unwrap(), program(1024));
        let mut lease = pool.try_lease(&program).unwrap();
        lease.value_mut(ValueId::new(0)).unwrap().fill(7);
        drop(lease);
        let lease = pool.try_lease(&program).unwrap();
        let expected = if clears { 0 } else { 7 };
        assert_eq!(lease.value(ValueId::new(0)).unwrap(), [expected; 512]);
        assert_eq!(pool.statistics().reused, 1);
    }
}

#[test]
fn steps_of_a_lease_are_lent_one_by_one() {
    let (pool, program) = (pool(1 << 20), program(1024));
    let mut lease = pool.try_lease(&program).unwrap();
    lease.value_mut(ValueId::new(0)).unwrap().fill(1);
    lease.step(0).unwrap().elementwise(|[x]: [u8; 1]| x + 1).unwrap();
    assert_eq!(lease.value(ValueId::new(1)).unwrap(), [2; 512]);
    let refused = lease.step(1).unwrap_err();
    assert!(matches!(refused, Error::InvalidOption { option: "step", .. }), "{refused}");
    // The first error of a kernel ends a run.
    let failed: Result<()> = lease.run(|_, _| Err(Error::Interrupted));
    assert_eq!(failed, Err(Error::Interrupted));
}

// -- waiting ---------------------------------------------------------------------------

#[test]
fn refusals_are_typed() {
    let (pool, small) = (pool(2048), program(1024));
    let refused = pool.try_lease(&program(2176)).unwrap_err();
    assert_eq!(refused, Error::LeaseTooLarge { bytes: 2176, cap: 2048 });
    let _leases = [0, 1].map(|_| pool.try_lease(&small).unwrap());
    let busy = Error::PoolBusy { bytes: 1024, leased: 2048, cap: 2048 };
    assert_eq!(pool.try_lease(&small).unwrap_err(), busy);
    assert_eq!(pool.wait(&small, Some(Duration::from_millis(1))).unwrap_err(), busy);
    assert_eq!(pool.wait(&small, Some(Duration::ZERO)).unwrap_err(), busy);
    // What can never be leased is not waited for.
    let refused = pool.wait(&program(2176), None).unwrap_err();
    assert_eq!(refused, Error::LeaseTooLarge { bytes: 2176, cap: 2048 });
    let numbers = pool.statistics();
    // Without a time to wait, a request takes no place in the queue.
    assert_eq!((numbers.refused, numbers.waits, numbers.waiting), (3, 1, 0));
}

/// Waits until so many requests wait in the pool.
fn until_waiting(pool: &ArenaPool, count: usize) {
    while pool.statistics().waiting != count {
        thread::yield_now();
    }
}

#[test]
fn requests_are_served_in_the_order_of_arrival() {
    let pool = pool(4096);
    let all = pool.try_lease(&program(4096)).unwrap();
    let (sender, served) = channel();
    thread::scope(|scope| {
        // The last would fit beside the first, and does not overtake the second.
        for (number, bytes) in [1024_u64, 4096, 1024].into_iter().enumerate() {
            let (pool, sender) = (&pool, sender.clone());
            scope.spawn(move || {
                let lease = pool.wait(&program(bytes), None).unwrap();
                sender.send(number).unwrap();
                drop(lease);
            });
            until_waiting(pool, number + 1);
        }
        let small = program(1024);
        assert!(matches!(pool.try_lease(&small), Err(Error::PoolBusy { .. })));
        drop(all);
        let order: Vec<_> = served.iter().take(3).collect();
        assert_eq!(order, [0, 1, 2]);
    });
    assert_eq!(pool.statistics().waiting, 0);
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn tasks_and_threads_wait_in_one_queue() {
    let (pool, program) = (pool(1024), program(1024));
    let first = pool.try_lease(&program).unwrap();
    let (sender, served) = channel();
    thread::scope(|scope| {
        for number in 0..4 {
            let (pool, program, sender) = (&pool, &program, sender.clone());
            scope.spawn(move || {
                let lease = if number % 2 == 0 {
                    block_on(pool.lease(program)).unwrap()
                } else {
                    pool.wait(program, None).unwrap()
                };
                sender.send(number).unwrap();
                drop(lease);
            });
            until_waiting(pool, number + 1);
        }
        drop(first);
        assert_eq!(served.iter().take(4).collect::<Vec<_>>(), [0, 1, 2, 3]);
    });
}

#[test]
fn a_future_that_is_dropped_leaves_the_queue_and_the_next_is_served() {
    let (pool, program) = (pool(1024), program(1024));
    let lease = pool.try_lease(&program).unwrap();
    let mut futures: Vec<_> = (0..3).map(|_| Box::pin(pool.lease(&program))).collect();
    let woken = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(pool.statistics().waiting, 3);
    drop(lease);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // The first was woken, and goes away: the second is woken in its place.
    drop(futures.remove(0));
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    // The last is not next, although there is room.
    assert!(futures[1].as_mut().poll(&mut context).is_pending());
    let Poll::Ready(lease) = futures[0].as_mut().poll(&mut context) else { panic!("served") };
    drop(futures.remove(1));
    assert_eq!(pool.statistics().waiting, 0);
    drop(lease);
    assert_eq!(pool.statistics().leased_bytes, 0);
    // A program that never fits does not block those behind it.
    let refused = block_on(pool.lease(&super::pool::program(2048)));
    assert!(matches!(refused, Err(Error::LeaseTooLarge { .. })));
    assert_eq!(pool.statistics().waiting, 0);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counter(AtomicU64);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waker_that_ends_a_lease_does_not_lock_the_pool() {
    /// Holds a lease until the last waker of it is gone.
    struct Holder(#[allow(dead_code, reason = "it is dropped")] Mutex<Option<Lease>>);

    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    let (pool, program) = (pool(2048), program(1024));
    let [held, _other] = [0, 1].map(|_| pool.try_lease(&program).unwrap());
    let mut future = Box::pin(pool.lease(&program));
    let waker = Waker::from(Arc::new(Holder(Mutex::new(Some(held)))));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // The pool has the only waker, and replaces it.
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_task_waits_until_its_timer_is_done() {
    let (pool, program) = (pool(256), program(256));
    let held = pool.try_lease(&program).unwrap();
    let (done, timer) = (Arc::new(AtomicU64::new(0)), Mutex::new(None));
    let tick = poll_fn(|context| {
        *timer.lock().unwrap() = Some(context.waker().clone());
        if done.load(Ordering::Relaxed) > 0 { Poll::Ready(()) } else { Poll::Pending }
    });
    let mut late = pin!(pool.lease_until(&program, tick));
    let mut next = pin!(pool.lease_until(&program, pending()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(late.as_mut().poll(&mut context).is_pending());
    assert!(next.as_mut().poll(&mut context).is_pending());
    assert_eq!(pool.statistics().waiting, 2);
    done.store(1, Ordering::Relaxed);
    let Poll::Ready(Err(error)) = late.as_mut().poll(&mut context) else { panic!("waits") };
    assert_eq!(error.kind(), "PoolBusy");
    assert_eq!((pool.statistics().waiting, pool.statistics().refused), (1, 1));
    // The task behind the one that gave up is served.
    drop(held);
    let Poll::Ready(Ok(lease)) = next.as_mut().poll(&mut context) else { panic!("not served") };
    // Memory that is there is leased even if there is no time; the timer is not looked at.
    drop(lease);
    let unused = poll_fn(|_| -> Poll<()> { panic!("the timer was asked") });
    assert!(block_on(pool.lease_until(&program, unused)).is_ok());
    assert_eq!(pool.statistics().leased_bytes, 0);
}

#[test]
fn a_lease_with_a_timer_is_given_up_at_any_time() {
    let (pool, program) = (pool(256), program(256));
    let held = pool.try_lease(&program).unwrap();
    {
        let mut waiting = pin!(pool.lease_until(&program, pending()));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(pool.statistics().waiting, 1);
    }
    assert_eq!(pool.statistics().waiting, 0);
    drop(held);
    assert!(pool.try_lease(&program).is_ok());
}

#[test]
fn a_panic_gives_a_lease_back() {
    let (pool, program) = (pool(1024), program(1024));
    for _ in 0..100 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut lease = pool.wait(&program, Some(Duration::ZERO)).unwrap();
            lease.run(|_, _| -> Result<()> { panic!("a kernel") })
        }));
        assert!(panicked.is_err());
    }
    let numbers = pool.statistics();
    assert_eq!((numbers.leased_bytes, numbers.allocated, numbers.reused), (0, 1, 99));
}

// -- backings --------------------------------------------------------------------------

/// Counts the bytes that blocks have.
#[derive(Debug, Default)]
struct Held {
    now: AtomicU64,
    most: AtomicU64,
}

#[derive(Debug)]
struct CountingAllocator(Arc<Held>);

impl ArenaAllocator for CountingAllocator {
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>> {
        let now = self.0.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.0.most.fetch_max(now, Ordering::Relaxed);
        SystemAllocator.allocate(bytes, alignment)
    }

    fn deallocate(&mut self, block: Box<dyn ArenaBlock>) {
        let bytes = u64::try_from((*block).as_ref().len()).unwrap();
        self.0.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What a faulty backing does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Refuses,
    TooFew,
    TooMany,
    Misaligned,
    Panics,
}

/// Bytes from some position on.
#[derive(Debug)]
struct Shifted(Box<dyn ArenaBlock>, usize);

impl AsRef<[u8]> for Shifted {
    fn as_ref(&self) -> &[u8] {
        &(*self.0).as_ref()[self.1..]
    }
}

impl AsMut<[u8]> for Shifted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut (*self.0).as_mut()[self.1..]
    }
}

/// Is faulty every second time.
#[derive(Debug)]
struct Faulty(Fault, u32);

impl ArenaAllocator for Faulty {
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>> {
        self.1 += 1;
        if self.1.is_multiple_of(2) {
            return SystemAllocator.allocate(bytes, alignment);
        }
        match self.0 {
            Fault::Refuses => Err(Error::ArenaCommit { bytes }),
            Fault::TooFew => SystemAllocator.allocate(bytes - 1, alignment),
            Fault::TooMany => SystemAllocator.allocate(bytes + 1, alignment),
            Fault::Misaligned => {
                Ok(Box::new(Shifted(SystemAllocator.allocate(bytes + 1, alignment)?, 1)))
            }
            Fault::Panics => panic!("a backing"),
        }
    }
}

#[test]
fn a_faulty_backing_costs_no_bytes_and_blocks_nobody() {
    use Fault::{Misaligned, Panics, Refuses, TooFew, TooMany};
    let program = program(1024);
    for fault in [Refuses, TooFew, TooMany, Misaligned, Panics] {
        let pool = ArenaPool::builder()
            .cap(1024)
            .rounding(Rounding::EXACT)
            .backing(Faulty(fault, 0))
            .build()
            .unwrap();
        for _ in 0..10 {
            let refused = catch_unwind(AssertUnwindSafe(|| pool.try_lease(&program)));
            match (fault, refused) {
                (Refuses, Ok(Err(Error::ArenaCommit { bytes: 1024 })))
                | (TooFew, Ok(Err(Error::BufferTooSmall { bytes: 1023, needed: 1024 })))
                | (TooMany, Ok(Err(Error::ArenaState { .. })))
                | (Misaligned, Ok(Err(Error::MisalignedBuffer { alignment: 64 })))
                | (Panics, Err(_)) => {}
                (fault, refused) => panic!("{fault:?}: {refused:?}"),
            }
            let numbers = pool.statistics();
            assert_eq!((numbers.leased_bytes, numbers.free_bytes), (0, 0));
            drop(pool.try_lease(&program).unwrap());
            assert_eq!(pool.trim(0), 1024);
        }
    }
}

#[test]
fn bytes_of_the_callers_are_arenas_with_an_address() {
    let (graph, x, _) = increment(512);
    let plan = Planner::new().plan(&graph).unwrap();
    let held = Arc::new(Held::default());
    let mut arena = plan.commit_in(&mut CountingAllocator(Arc::clone(&held))).unwrap();
    assert_eq!(held.now.load(Ordering::Relaxed), 1024);
    arena.value_mut(&plan, x).unwrap().fill(3);
    let space = arenaplan::SpaceId::new(0);
    let place = plan.placement(x).unwrap();
    let offset = usize::try_from(place.offset).unwrap();
    let address = arena.as_mut_ptr(space).unwrap().addr().get();
    assert_eq!(arena.value(&plan, x).unwrap().as_ptr().addr(), address + offset);
    assert_eq!(arena.as_mut_ptr(arenaplan::SpaceId::new(1)), None);
    for fault in [Fault::TooFew, Fault::Misaligned, Fault::Refuses] {
        assert!(plan.commit_in(&mut Faulty(fault, 0)).is_err());
    }
    // A block may be larger than the plan.
    assert!(plan.commit_in(&mut Faulty(Fault::TooMany, 0)).is_ok());
    // No bytes are nowhere misaligned.
    let nothing = Planner::new().plan(&crate::graphs::Sketch::new().build(&[])).unwrap();
    assert!(nothing.commit_in(&mut Faulty(Fault::Misaligned, 0)).is_ok());
}

#[cfg(feature = "mmap")]
#[test]
fn mapped_pages_are_zeroed_aligned_and_gone_when_freed() {
    use arenaplan::pool::Pages;

    /// Returns the bytes of this process that are in memory, in KiB, if the system tells.
    fn resident() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    for (pages, least) in [(Pages::new(), 4096), (Pages::huge(), 2 << 20)] {
        let pool = ArenaPool::builder().cap(1 << 30).backing(pages).build().unwrap();
        let program = program(128 << 20);
        let mut lease = pool.try_lease(&program).unwrap();
        assert!(lease.value(ValueId::new(1)).unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(address(&lease) % least, 0);
        let before = resident();
        lease.value_mut(ValueId::new(0)).unwrap().fill(1);
        drop(lease);
        if let (Some(before), Some(full)) = (before, resident()) {
            assert!(full > before + (40 << 10), "{before} {full}");
            assert_eq!(pool.trim(0), 128 << 20);
            let after = resident().unwrap();
            assert!(after + (40 << 10) < full, "{full} {after}");
        }
        let too_many = Pages::new().allocate(u64::MAX, Alignment::BYTE);
        assert_eq!(too_many.unwrap_err(), Error::ArenaCommit { bytes: u64::MAX });
        assert!(Pages::new().allocate(1 << 62, Alignment::BYTE).is_err());
    }
}

// -- many threads ----------------------------------------------------------------------

/// Runs programs of several sizes in many threads, and leaves in every way that there is.
fn storm(options: PoolBuilder, cap: u64, threads: usize, requests: usize) {
    let held = Arc::new(Held::default());
    let pool = options.cap(cap).backing(CountingAllocator(Arc::clone(&held))).build().unwrap();
    let programs: Vec<_> = (1..=5).map(|scale| program(1024 * scale)).collect();
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        for number in 0..threads {
            let (pool, programs, start) = (&pool, &programs, &start);
            scope.spawn(move || {
                start.wait();
                for request in 0..requests {
                    let at = number * 7 + request * 13;
                    let program = &programs[at % programs.len()];
                    let lease = match at % 8 {
                        0 => pool.try_lease(program),
                        1 => pool.wait(program, Some(Duration::from_micros(50))),
                        2 => {
                            // Cancelled after one look.
                            let mut future = Box::pin(pool.lease(program));
                            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                                Poll::Ready(lease) => lease,
                                Poll::Pending => continue,
                            }
                        }
                        3 => block_on(pool.lease(program)),
                        _ => pool.wait(program, None),
                    };
                    let mut lease = match lease {
                        Ok(lease) => lease,
                        Err(Error::PoolBusy { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let byte = u8::try_from(at % 251).unwrap();
                    lease.value_mut(ValueId::new(0)).unwrap().fill(byte);
                    if at % 11 == 0 {
                        thread::yield_now();
                    }
                    lease.run(|_, memory| memory.elementwise(|[x]: [u8; 1]| x + 1)).unwrap();
                    let y = lease.value(ValueId::new(1)).unwrap();
                    assert!(y.iter().all(|&y| y == byte + 1));
                }
            });
        }
    });
    let numbers = pool.statistics();
    assert!(held.most.load(Ordering::Relaxed) <= cap);
    assert!(numbers.peak_bytes <= cap);
    assert_eq!((numbers.leased_bytes, numbers.waiting), (0, 0));
    assert_eq!(numbers.free_bytes, held.now.load(Ordering::Relaxed));
    assert!(numbers.waits > 0 && numbers.reused > 0, "{numbers:?}");
    pool.trim(0);
    assert_eq!(held.now.load(Ordering::Relaxed), 0);
}

#[test]
fn forty_threads_stay_below_the_cap_and_compute_what_one_computes() {
    storm(ArenaPool::builder().rounding(Rounding::EXACT), 12 << 10, 40, 500);
    storm(ArenaPool::builder().keep(6 << 10), 24 << 10, 40, 500);
    storm(ArenaPool::builder().rounding(Rounding::powers(512, 12).unwrap()), 9 << 10, 8, 2000);
}

proptest! {
    /// A model of the books: what is leased is what was asked for, rounded or a bit more.
    #[test]
    fn the_books_are_right_after_every_step(
        cap in 8_u64..64,
        keep in 0_u64..64,
        steps in prop::collection::vec((0_u8..6, 1_u64..16, any::<prop::sample::Index>()), 1..60),
    ) {
        let (cap, keep) = (cap * 128, keep * 128);
        let held = Arc::new(Held::default());
        let pool = ArenaPool::builder().cap(cap).keep(keep).rounding(Rounding::EXACT)
            .backing(CountingAllocator(Arc::clone(&held))).build().unwrap();
        let mut leases: Vec<(Lease, u64)> = Vec::new();
        for (kind, size, which) in steps {
            let bytes = size * 128;
            let asked: u64 = leases.iter().map(|(_, bytes)| bytes).sum();
            match kind {
                0..3 => match pool.try_lease(&program(bytes)) {
                    Ok(lease) => leases.push((lease, bytes)),
                    Err(Error::LeaseTooLarge { .. }) => prop_assert!(bytes > cap),
                    Err(Error::PoolBusy { leased, .. }) => {
                        // Nothing is refused that would fit beside the blocks of the others.
                        prop_assert!(leased + bytes > cap, "{leased} {bytes} {cap}");
                        prop_assert!(leased <= asked + asked / 3);
                    }
                    Err(error) => panic!("{error}"),
                },
                3 | 4 if !leases.is_empty() => {
                    leases.swap_remove(which.index(leases.len()));
                }
                _ => {
                    pool.trim(bytes);
                    prop_assert!(pool.statistics().free_bytes <= bytes);
                }
            }
            let numbers = pool.statistics();
            let asked: u64 = leases.iter().map(|(_, bytes)| bytes).sum();
            prop_assert!(numbers.leased_bytes >= asked);
            prop_assert_eq!(
                numbers.leased_bytes + numbers.free_bytes, held.now.load(Ordering::Relaxed));
            prop_assert!(held.most.load(Ordering::Relaxed) <= cap);
        }
    }
}
