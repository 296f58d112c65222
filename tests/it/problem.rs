//! What a problem accepts and refuses; rows A of the list of bad inputs.

use arenaplan::base::{Alignment, BufferId, LiveRange, MAX_BYTES};
use arenaplan::pack::{Buffer, Part, Space, max_load};
use arenaplan::{Problem, SpaceId};

fn live(start: u32, end: u32) -> LiveRange {
    LiveRange::new(start, end).unwrap()
}

fn problem(buffers: Vec<Buffer>) -> Result<Problem, &'static str> {
    let space = Space::default().with_capacity(1024);
    Problem::new(buffers, vec![space]).map_err(|error| error.kind())
}

#[test]
fn a21_live_ranges_are_never_empty() {
    for (start, end) in [(3, 3), (4, 3), (u32::MAX, 0)] {
        assert_eq!(LiveRange::new(start, end).unwrap_err().kind(), "InvalidLiveRange");
    }
    assert_eq!(LiveRange::new(0, u32::MAX).unwrap().end().get(), u32::MAX);
}

#[test]
fn a22_pins_that_no_packing_can_honor_are_refused() {
    let pinned = |offset, start, end| Buffer::new(64, live(start, end)).with_pin(offset);
    assert_eq!(problem(vec![pinned(961, 0, 1)]), Err("PinConflict"), "past the capacity");
    assert_eq!(problem(vec![pinned(u64::MAX, 0, 1)]), Err("PinConflict"), "past any memory");
    let odd = pinned(1, 0, 1).with_alignment(Alignment::new(64).unwrap());
    assert_eq!(problem(vec![odd]), Err("PinConflict"), "misaligned");
    assert_eq!(problem(vec![pinned(0, 0, 2), pinned(63, 1, 3)]), Err("PinConflict"), "overlap");
    assert!(problem(vec![pinned(0, 0, 2), pinned(64, 1, 3)]).is_ok());
    assert!(problem(vec![pinned(0, 0, 2), pinned(0, 2, 3)]).is_ok());
}

#[test]
fn parts_are_inside_their_buffer_in_order_and_apart() {
    let part = |start: u64, end: u64, ranges: &[(u32, u32)]| Part {
        bytes: start..end,
        live: ranges.iter().map(|&(start, end)| live(start, end)).collect(),
    };
    let build = |parts: Vec<Part>| Buffer::with_parts(100, parts).map_err(|error| error.kind());
    assert!(build(vec![part(0, 50, &[(0, 3), (5, 6)]), part(50, 100, &[(1, 2)])]).is_ok());
    for parts in [
        vec![],
        vec![part(0, 101, &[(0, 1)])],
        vec![part(7, 7, &[(0, 1)])],
        vec![part(0, 10, &[])],
        vec![part(0, 10, &[(2, 4), (1, 2)])],
        vec![part(0, 10, &[(1, 3), (2, 4)])],
    ] {
        assert_eq!(build(parts.clone()), Err("InvalidBuffer"), "{parts:?}");
    }
}

#[test]
fn one_part_that_is_everything_is_a_solid_buffer() {
    let whole = Part { bytes: 0..100, live: vec![live(2, 5)] };
    assert_eq!(Buffer::with_parts(100, vec![whole]).unwrap(), Buffer::new(100, live(2, 5)));
}

#[test]
fn buffers_are_in_spaces_that_are_there_and_of_sizes_that_are() {
    let elsewhere = Buffer::new(1, live(0, 1)).with_space(SpaceId::new(1));
    assert_eq!(problem(vec![elsewhere]), Err("InvalidBuffer"));
    assert_eq!(problem(vec![Buffer::new(MAX_BYTES + 1, live(0, 1))]), Err("SizeOverflow"));
    assert!(problem(vec![Buffer::new(MAX_BYTES, live(0, 1))]).is_ok());
}

#[test]
fn the_stricter_alignment_of_buffer_and_space_counts() {
    let align = |bytes| Alignment::new(bytes).unwrap();
    let buffers = [16, 256].map(|bytes| Buffer::new(1, live(0, 1)).with_alignment(align(bytes)));
    let space = Space::default().with_alignment(align(64));
    let problem = Problem::new(buffers.to_vec(), vec![space]).unwrap();
    assert_eq!(problem.alignment(BufferId::new(0)), align(64));
    assert_eq!(problem.alignment(BufferId::new(1)), align(256));
}

#[test]
fn the_load_of_sparse_steps_takes_no_memory_for_the_gaps() {
    let far = u32::MAX - 1;
    let buffers = vec![Buffer::new(7, live(0, 1)), Buffer::new(9, live(far, far + 1))];
    let problem = problem(buffers).unwrap();
    let (load, step) = max_load(&problem, SpaceId::new(0)).unwrap();
    assert_eq!((load, step.get()), (9, far));
}

#[test]
fn a_load_past_any_machine_is_an_error() {
    let buffers = vec![Buffer::new(MAX_BYTES, live(0, 2)), Buffer::new(1, live(1, 3))];
    let problem = problem(buffers).unwrap();
    assert_eq!(max_load(&problem, SpaceId::new(0)).unwrap_err().kind(), "SizeOverflow");
}
