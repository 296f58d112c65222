//! Conflicts: steps that use the same bytes, at least one for writing.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use crate::plan::{Hazard, HazardKind, Plan};
use crate::run::arena::{Holder, StepSpans, Stretch};

/// The last users of a byte stretch.
#[derive(Clone, Debug)]
struct Users {
    /// Byte after the last.
    end: usize,
    /// The step that wrote the bytes last; `None` if no step did yet.
    writer: Option<u32>,
    /// The steps that read the bytes since, ascending.
    readers: Vec<u32>,
}

/// Stretches of a space by first byte. Unused bytes are in no stretch.
type Uses = BTreeMap<usize, Users>;

/// Returns the conflicts between steps. Conflicts that follow from other conflicts on the same
/// bytes are left out: before a read, all writers except the last; before a write, all users before
/// the last write, and the last write if the bytes were read since.
///
/// A write joins the covered stretches, so a step usually meets few stretches.
pub(super) fn conflicts(plan: &Plan, steps: &[StepSpans]) -> Vec<Hazard> {
    let mut spaces: Vec<Uses> = plan.spaces().iter().map(|_| Uses::new()).collect();
    let mut edges = Vec::new();
    for (after, (row, step)) in (0_u32..).zip(plan.steps().iter().zip(steps)) {
        // A state that is written without being read is also an operand.
        let read_places = row.inputs.iter().zip(&step.inputs).filter(|(value, _)| value.is_some());
        for place in read_places.filter_map(|(_, input)| input.place) {
            read(&mut spaces[place.region], place, after, &mut edges);
        }
        let written = step.pieces.iter().filter(|piece| match piece.holder {
            Holder::Output(_) | Holder::Workspace(_) | Holder::State(_) => true,
            Holder::Readers(_) => false,
        });
        for place in written.map(|piece| piece.place) {
            write(&mut spaces[place.region], place, after, &mut edges);
        }
    }
    edges
}

/// Records that a step reads bytes: the step waits for the writers.
fn read(memory: &mut Uses, place: Stretch, after: u32, edges: &mut Vec<Hazard>) {
    if place.is_empty() {
        return;
    }
    cut(memory, place.start);
    cut(memory, place.end);
    let mut unused = Vec::new();
    let mut at = place.start;
    for (&start, users) in memory.range_mut(place.range()) {
        if at < start {
            unused.push((at, start));
        }
        at = users.end;
        if users.readers.last() == Some(&after) {
            continue;
        }
        if let Some(before) = users.writer {
            edges.push(Hazard { after, before, kind: HazardKind::Data });
        }
        users.readers.push(after);
    }
    if at < place.end {
        unused.push((at, place.end));
    }
    for (start, end) in unused {
        memory.insert(start, Users { end, writer: None, readers: vec![after] });
    }
}

/// Records that a step writes bytes: the step waits for the readers since the last write, or for
/// that write.
fn write(memory: &mut Uses, place: Stretch, after: u32, edges: &mut Vec<Hazard>) {
    cut(memory, place.start);
    cut(memory, place.end);
    let covered: Vec<usize> = memory.range(place.range()).map(|(&start, _)| start).collect();
    for start in covered {
        let Some(users) = memory.remove(&start) else { continue };
        if let (Some(before), true) = (users.writer, users.readers.is_empty()) {
            edges.push(Hazard { after, before, kind: HazardKind::WriteAfterWrite });
        }
        for before in users.readers.into_iter().filter(|&before| before != after) {
            edges.push(Hazard { after, before, kind: HazardKind::WriteAfterRead });
        }
    }
    let users = Users { end: place.end, writer: Some(after), readers: Vec::new() };
    memory.insert(place.start, users);
}

/// Cuts the stretch that contains the byte at `at` in two there.
fn cut(memory: &mut Uses, at: usize) {
    if let Some((_, users)) = memory.range_mut(..at).next_back().filter(|(_, users)| users.end > at)
    {
        let rest = users.clone();
        users.end = at;
        memory.insert(at, rest);
    }
}
