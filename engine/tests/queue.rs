//! The queue of operations: MXNet's tests of its engine, and the failures that its engine has.

#![allow(
    clippy::unwrap_used,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "tests"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use arenaplan_engine::{Cause, Operation, Policy, PushError, Queue, Variable, WaitError};

fn policies() -> Vec<Policy> {
    let mut policies = vec![Policy::Serial, Policy::per_space(3)];
    policies.extend((1..=8).map(Policy::workers));
    policies
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// One operation of `RandSumExpr`: the variables that it reads, and the one that it writes.
struct Sum {
    reads: Vec<usize>,
    write: usize,
}

/// MXNet's random workload: each operation reads 2 to 19 variables, and writes their sum over their
/// number and one.
fn workload(operations: usize, variables: usize, seed: u64) -> Vec<Sum> {
    let mut numbers = Numbers(seed);
    let mut sums = Vec::new();
    for _ in 0..operations {
        let write = numbers.below(variables);
        let mut reads = Vec::new();
        for _ in 0..2 + numbers.below(18) {
            let read = numbers.below(variables);
            if read != write && !reads.contains(&read) {
                reads.push(read);
            }
        }
        sums.push(Sum { reads, write });
    }
    sums
}

fn serial(workload: &[Sum], variables: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..variables).map(|index| index as f64).collect();
    for Sum { reads, write } in workload {
        let sum: f64 = reads.iter().map(|&read| values[read]).sum();
        values[*write] = sum / (reads.len() + 1) as f64;
    }
    values
}

/// Row 40: 10,000 operations on 100 variables are those of a serial run, bit for bit.
#[test]
fn random_sums_are_those_of_a_serial_run() {
    const VARIABLES: usize = 100;
    for (seed, policy) in (1..).zip(policies()) {
        let sums = workload(10_000, VARIABLES, seed);
        let expected = serial(&sums, VARIABLES);
        let queue = Queue::new(policy);
        let values: Vec<Variable<f64>> =
            (0..VARIABLES).map(|index| queue.variable(index as f64)).collect();
        for (index, Sum { reads, write }) in sums.iter().enumerate() {
            let mut operation = Operation::new("sum").writes(&values[*write]).on(write % 3);
            for &read in reads {
                operation = operation.reads(&values[read]);
            }
            let from: Vec<_> = reads.iter().map(|&read| values[read].clone()).collect();
            let to = values[*write].clone();
            queue
                .push(operation, move |task| {
                    let mut sum = 0.0;
                    for value in &from {
                        sum += *task.read(value)?;
                    }
                    if index % 97 == 0 {
                        thread::yield_now();
                    }
                    *task.write(&to)? = sum / (from.len() + 1) as f64;
                    Ok(())
                })
                .unwrap();
        }
        queue.wait_all().unwrap();
        for (index, value) in values.iter().enumerate() {
            assert_eq!(
                queue.get(value).unwrap().to_bits(),
                expected[index].to_bits(),
                "{policy:?}"
            );
            let writes = sums.iter().filter(|sum| sum.write == index).count();
            assert_eq!(queue.version(value).unwrap(), writes as u64);
        }
    }
}

/// Row 7.4: B = A + 1; C = A + 2; A = C * 2; D = A + 3.
#[test]
fn the_queue_example_leaves_each_variable_at_version_one() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let [a, b, c, d] = [10, 0, 0, 0].map(|value| queue.variable(value));
        let add = |from: &Variable<i32>, to: &Variable<i32>, more: i32| {
            let operation = Operation::new("add").reads(from).writes(to);
            let (from, to) = (from.clone(), to.clone());
            queue
                .push(operation, move |task| {
                    *task.write(&to)? = *task.read(&from)? + more;
                    Ok(())
                })
                .unwrap();
        };
        add(&a, &b, 1);
        add(&a, &c, 2);
        let (from, to) = (c.clone(), a.clone());
        queue
            .push(Operation::new("double").reads(&c).writes(&a), move |task| {
                *task.write(&to)? = *task.read(&from)? * 2;
                Ok(())
            })
            .unwrap();
        add(&a, &d, 3);
        queue.wait_all().unwrap();
        assert_eq!([&a, &b, &c, &d].map(|it| queue.get(it).unwrap()), [24, 11, 12, 27]);
        assert_eq!([&a, &b, &c, &d].map(|it| queue.version(it).unwrap()), [1; 4]);
    }
}

/// Two readers of one version meet in a barrier, so they run at the same time.
#[test]
fn readers_of_one_version_run_at_the_same_time() {
    let queue = Queue::new(Policy::workers(2));
    let a = queue.variable(1);
    let meet = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let (a, meet) = (a.clone(), Arc::clone(&meet));
        let operation = Operation::new("reader").reads(&a);
        queue
            .push(operation, move |task| {
                let _value = task.read(&a)?;
                meet.wait();
                Ok(())
            })
            .unwrap();
    }
    queue.wait_all().unwrap();
}

#[test]
fn variables_that_are_named_twice_are_refused() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let (a, b) = (queue.variable(1), queue.variable(2));
        let refused = |operation| queue.push(operation, |_| Ok(())).unwrap_err();
        let duplicate = PushError::Duplicate(a.id());
        assert_eq!(refused(Operation::new("x").reads(&a).writes(&a)), duplicate);
        assert_eq!(refused(Operation::new("x").writes(&a).writes(&b).writes(&a)), duplicate);
        assert_eq!(refused(Operation::new("x").reads(&a).reads(&b).reads(&a)), duplicate);
        let other = Queue::new(Policy::Serial);
        let foreign = Operation::new("x").writes(&other.variable(1));
        assert!(matches!(refused(foreign), PushError::Foreign(_)));
        assert!(matches!(queue.get(&other.variable(1)), Err(WaitError::Foreign(_))));
        queue.wait_all().unwrap();
        assert_eq!(queue.version(&a).unwrap(), 0);
    }
    let queue = Queue::new(Policy::per_space(2));
    let operation = Operation::new("x").on(2);
    assert_eq!(queue.push(operation, |_| Ok(())).unwrap_err(), PushError::Space(2));
}

#[derive(Debug, thiserror::Error)]
#[error("out of {0}")]
struct OutOf(&'static str);

/// Fails for variable `a`; makes `b` of `a`, `c` of `b`, and `d` of nothing.
fn with_failure(queue: &Queue, ran: &Arc<AtomicUsize>) -> [Variable<i32>; 4] {
    let [a, b, c, d] = [0; 4].map(|value| queue.variable(value));
    queue.push(Operation::new("fails").writes(&a), |_| Err(OutOf("paper").into())).unwrap();
    for (from, to) in [(&a, &b), (&b, &c)] {
        let ran = Arc::clone(ran);
        let operation = Operation::new("follows").reads(from).writes(to);
        queue
            .push(operation, move |_| {
                ran.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
    }
    let to = d.clone();
    queue
        .push(Operation::new("apart").writes(&d), move |task| {
            *task.write(&to)? = 7;
            Ok(())
        })
        .unwrap();
    [a, b, c, d]
}

/// K-23: an error stays with its variable for everybody, and no operation after it runs.
#[test]
fn errors_travel_with_variables_and_reach_everybody_who_waits() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let ran = Arc::new(AtomicUsize::new(0));
        let [a, b, c, d] = with_failure(&queue, &ran);
        for variable in [&c, &a, &b, &c] {
            let Err(WaitError::Operation(error)) = queue.wait_for(variable) else {
                panic!("variable {} has no error", variable.id())
            };
            assert_eq!(error.to_string(), "operation 0 ('fails'): out of paper");
            let Cause::Failed(cause) = &error.cause else { panic!("{error:?}") };
            assert!(cause.downcast_ref::<OutOf>().is_some());
            assert!(queue.get(variable).is_err());
        }
        assert_eq!(queue.get(&d).unwrap(), 7);
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        // A second wait for all is silent; the variables keep their error.
        assert!(matches!(queue.wait_all(), Err(WaitError::Operation(_))));
        queue.wait_all().unwrap();
        assert!(queue.wait_for(&c).is_err());
        // Restored variables can be used again; those made from them are not.
        queue.restore(&a, 5).unwrap();
        assert_eq!(queue.get(&a).unwrap(), 5);
        assert!(queue.wait_for(&b).is_err());
        let (from, to) = (a.clone(), b.clone());
        queue.restore(&b, 0).unwrap();
        queue
            .push(Operation::new("again").reads(&a).writes(&b), move |task| {
                *task.write(&to)? = *task.read(&from)? + 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(queue.get(&b).unwrap(), 6);
        queue.wait_all().unwrap();
        assert_eq!(queue.version(&b).unwrap(), 3);
    }
}

/// K-23: the error of an operation that writes nothing is not lost.
#[test]
fn errors_of_operations_without_variables_reach_who_waits_for_all() {
    for policy in policies() {
        let queue = Queue::new(policy);
        for name in ["first", "second", "third"] {
            queue.push(Operation::new(name), move |_| Err(OutOf(name).into())).unwrap();
        }
        let Err(WaitError::Operation(error)) = queue.wait_all() else { panic!("no error") };
        assert_eq!(error.to_string(), "operation 0 ('first'): out of first");
    }
}

/// Of two errors the one of the operation that was pushed first travels on, whichever ends first.
#[test]
fn the_first_of_several_errors_is_inherited() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let [a, b, c] = [0; 3].map(|value| queue.variable(value));
        queue
            .push(Operation::new("slow").writes(&a), |_| {
                thread::sleep(Duration::from_millis(5));
                Err(OutOf("time").into())
            })
            .unwrap();
        queue
            .push(Operation::new("quick").writes(&b).on(1), |_| Err(OutOf("luck").into()))
            .unwrap();
        queue.push(Operation::new("both").reads(&b).reads(&a).writes(&c), |_| Ok(())).unwrap();
        let Err(WaitError::Operation(error)) = queue.wait_for(&c) else { panic!("no error") };
        assert_eq!(&*error.name, "slow");
        let Err(WaitError::Operation(error)) = queue.wait_for(&b) else { panic!("no error") };
        assert_eq!(&*error.name, "quick");
    }
}

#[test]
fn panics_are_errors() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let a = queue.variable(0);
        queue.push(Operation::new("panics").writes(&a), |_| panic!("no {}", "bananas")).unwrap();
        let Err(WaitError::Operation(error)) = queue.wait_for(&a) else { panic!("no error") };
        assert_eq!(error.to_string(), "operation 0 ('panics'): panicked: no bananas");
        // The threads live on.
        queue.restore(&a, 3).unwrap();
        assert_eq!(queue.get(&a).unwrap(), 3);
    }
}

#[test]
fn undeclared_variables_are_out_of_reach() {
    let queue = Queue::new(Policy::workers(2));
    let (a, b) = (queue.variable(1), queue.variable(2));
    let (from, to) = (a.clone(), b.clone());
    queue
        .push(Operation::new("reads only").reads(&a), move |task| {
            assert!(task.write(&from).unwrap_err().writes);
            assert_eq!(task.read(&to).unwrap_err().variable, to.id());
            assert_eq!(*task.read(&from)?, 1);
            Ok(())
        })
        .unwrap();
    queue.wait_all().unwrap();
}

/// An operation that waits in its own queue would wait for itself.
#[test]
fn operations_do_not_wait_in_their_queue() {
    for policy in policies() {
        let queue = Arc::new(Queue::new(policy));
        let a = queue.variable(1);
        let (own, value) = (Arc::clone(&queue), a.clone());
        let inner = a.clone();
        queue
            .push(Operation::new("outer").writes(&a), move |task| {
                assert!(own.is_inside());
                assert!(matches!(own.wait_all(), Err(WaitError::Inside)));
                assert!(matches!(own.wait_for(&value), Err(WaitError::Inside)));
                assert!(matches!(own.get(&value), Err(WaitError::Inside)));
                // Pushing is fine: it runs after this one.
                let later = value.clone();
                own.push(Operation::new("inner").writes(&value), move |task| {
                    *task.write(&later)? *= 10;
                    Ok(())
                })?;
                *task.write(&value)? += 1;
                Ok(())
            })
            .unwrap();
        queue.wait_all().unwrap();
        assert_eq!(queue.get(&inner).unwrap(), 20);
    }
}

/// Dropping a queue waits for all operations, and for all threads that were pushing.
#[test]
fn dropping_a_queue_waits() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let done = Arc::new(AtomicUsize::new(0));
        let a = queue.variable(0);
        for _ in 0..50 {
            let done = Arc::clone(&done);
            queue
                .push(Operation::new("slow").writes(&a), move |_| {
                    thread::sleep(Duration::from_micros(200));
                    done.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                })
                .unwrap();
        }
        queue.close();
        assert_eq!(done.load(Ordering::SeqCst), 50);
        queue.close();
        assert_eq!(queue.push(Operation::new("late"), |_| Ok(())), Err(PushError::Closed));
    }
    // The last handle of a queue may be dropped by an operation.
    let queue = Arc::new(Queue::new(Policy::workers(2)));
    let (sender, receiver) = mpsc::channel();
    let (own, open) = (Arc::clone(&queue), Arc::new(Barrier::new(2)));
    let gate = Arc::clone(&open);
    queue
        .push(Operation::new("last"), move |_| {
            gate.wait();
            drop(own);
            sender.send(()).unwrap();
            Ok(())
        })
        .unwrap();
    drop(queue);
    open.wait();
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
}

/// A server that makes a variable for each request must not grow.
#[test]
fn variables_that_nobody_names_leave_nothing() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let kept = queue.variable(0);
        for step in 0..2_000 {
            let request = queue.variable(step);
            let (from, to) = (request.clone(), kept.clone());
            let operation = Operation::new("add").reads(&request).writes(&kept);
            drop(request); // The operation still names the variable.
            queue
                .push(operation, move |task| {
                    *task.write(&to)? += *task.read(&from)?;
                    if step % 7 == 0 { Err("the error of a variable".into()) } else { Ok(()) }
                })
                .unwrap();
            queue.restore(&kept, step).unwrap();
        }
        assert_eq!(queue.get(&kept).unwrap(), 1_999);
        assert!(queue.wait_all().is_err());
        assert_eq!(queue.version(&kept).unwrap(), 4_000);
        queue.close(); // An operation lets go of its variables just after it has ended.
        assert_eq!(queue.variables(), 1);
    }
}

/// An operation ends with the last copy of its task, on whichever thread that is.
#[test]
fn operations_complete_later() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let (events, device) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let device = thread::spawn(move || device.into_iter().for_each(|event| event()));
        let (a, b) = (queue.variable(1), queue.variable(0));
        for _ in 0..50 {
            let (to, events) = (a.clone(), events.clone());
            queue
                .push(Operation::new("later").writes(&a), move |task| {
                    let task = task.clone();
                    let event = move || *task.write(&to).unwrap() += 1;
                    events.send(Box::new(event)).map_err(|_| "the device is gone".into())
                })
                .unwrap();
            let (from, to) = (a.clone(), b.clone());
            queue
                .push(Operation::new("now").reads(&a).writes(&b), move |task| {
                    *task.write(&to)? += *task.read(&from)?;
                    Ok(())
                })
                .unwrap();
        }
        while !queue.wait_all_within(Duration::from_micros(50)).unwrap() {}
        assert_eq!(queue.get(&a).unwrap(), 51);
        assert_eq!(queue.get(&b).unwrap(), (2..=51).sum::<i32>());
        drop(events);
        device.join().unwrap();
    }
}

/// Every operation runs on a thread that has what `around` made.
#[test]
fn threads_have_what_operations_need() {
    thread_local! {
        static NAME: std::cell::Cell<&'static str> = const { std::cell::Cell::new("none") };
    }
    let queue = Queue::on_threads(Policy::workers(3), |work| {
        NAME.set("device");
        work();
    });
    for _ in 0..50 {
        let operation = Operation::new("named");
        let named = |name| if name == "device" { Ok(()) } else { Err(OutOf("devices").into()) };
        queue.push(operation, move |_| named(NAME.get())).unwrap();
    }
    queue.wait_all().unwrap();
}

/// A task that fails, or whose thread panics, fails its operation, and no thread waits for it.
#[test]
fn tasks_fail_on_other_threads() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let a = queue.variable(1);
        let told = |end: fn(arenaplan_engine::Task)| {
            let operation = Operation::new("later").writes(&a);
            let body = move |task: &arenaplan_engine::Task| {
                let task = task.clone();
                thread::spawn(move || end(task));
                Ok(())
            };
            queue.push(operation, body).unwrap();
            let Err(WaitError::Operation(error)) = queue.wait_for(&a) else { panic!("no error") };
            queue.restore(&a, 1).unwrap();
            error.cause.to_string()
        };
        let two = |task: arenaplan_engine::Task| {
            task.fail("first");
            task.fail("second");
        };
        assert_eq!(told(two), "first");
        let panics = |_task: arenaplan_engine::Task| panic!("lost");
        assert_eq!(told(panics), "panicked: a thread that held its task");
        assert_eq!(queue.get(&a).unwrap(), 1);
    }
}

/// Several threads push at once: each sees its own operations in order.
#[test]
fn several_threads_push() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let all = queue.variable(Vec::new());
        let order = Mutex::new(());
        thread::scope(|scope| {
            for thread in 0..4 {
                let (queue, all, order) = (&queue, &all, &order);
                scope.spawn(move || {
                    for step in 0..100 {
                        let to = all.clone();
                        let _turn = order.lock().unwrap();
                        queue
                            .push(Operation::new("append").writes(all), move |task| {
                                task.write(&to)?.push((thread, step));
                                Ok(())
                            })
                            .unwrap();
                    }
                });
            }
        });
        let found = queue.get(&all).unwrap();
        assert_eq!(found.len(), 400);
        for thread in 0..4 {
            let own = found.iter().filter(|it| it.0 == thread).map(|it| it.1);
            assert!(own.eq(0..100));
        }
    }
}

/// Bulk of MXNet: ones(10): × 2, + 1, wait, + 1 → 4; then 100 × + 1 → 104.
#[test]
fn many_small_operations_on_one_variable_add_up() {
    for policy in policies() {
        let queue = Queue::new(policy);
        let x = queue.variable(vec![1.0_f32; 10]);
        let each = |change: fn(f32) -> f32| {
            let to = x.clone();
            queue
                .push(Operation::new("each").writes(&x), move |task| {
                    task.write(&to)?.iter_mut().for_each(|it| *it = change(*it));
                    Ok(())
                })
                .unwrap();
        };
        each(|it| it * 2.0);
        each(|it| it + 1.0);
        queue.wait_for(&x).unwrap();
        each(|it| it + 1.0);
        assert_eq!(queue.get(&x).unwrap(), [4.0; 10]);
        (0..100).for_each(|_| each(|it| it + 1.0));
        assert_eq!(queue.get(&x).unwrap(), [104.0; 10]);
    }
}
