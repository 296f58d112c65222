//! Exact search of the items in the most loaded sections; first fit places all other items around
//! the result.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::incumbent::Incumbent;
use crate::base::Result;
use crate::solve::budget::Stage;
use crate::solve::exact::outcome::Outcome;
use crate::solve::exact::restarts::Restarts;
use crate::solve::exact::turns::Turns;
use crate::solve::greedy::first_fit;
use crate::solve::greedy::first_fit::Order;
use crate::solve::greedy::occupancy::Occupancy;
use crate::solve::model::arith::{index, number, real, whole};
use crate::solve::model::clock::Clock;
use crate::solve::model::loads::most_loaded;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::{Item, Model};
use crate::solve::repair::chains::EjectionChains;
use crate::solve::tuning;

/// A series of exact searches in a growing part of a model that is too large to be searched as a
/// whole.
///
/// The items in the most loaded sections are *critical*. Critical items decide the peak: other
/// items are live where loads are smaller, so there is room around any packing of the critical
/// items. Exact search packs the critical items, first fit places the other items, and ejection
/// chains move down the items that still end above the target. A few items that remain above the
/// target become critical; for many such items, more sections become critical.
///
/// New in this form, as far as known. `TelaMalloc` (Maas et al., ASPLOS 2023) also searches the most
/// contended phases first.
#[derive(Debug)]
pub(crate) struct Critical {
    /// Items by the largest load that they meet, descending, with these loads.
    by_load: Vec<u32>,
    met: Vec<u64>,
    /// All section loads, descending.
    levels: Vec<u64>,
    /// How many sections are critical.
    sections: usize,
    /// Items in other sections without room.
    crowded: Vec<u32>,
    /// The critical items, in ascending order, during their search.
    kept: Vec<u32>,
    search: Option<(Model, Restarts, Turns)>,
    /// A completed packing in which some items still end above the target.
    draft: Option<Vec<u64>>,
    space: Occupancy,
    /// Used orders, which depend only on the model.
    orders: Vec<(Order, Vec<u32>)>,
    completions: usize,
    tries: usize,
    /// How many targets were given up: the next is closer to the best peak.
    level: i32,
    target: u64,
}

/// Orders for the items that are not critical: the first order, and one of the others.
const FIRST_ORDER: Order = Order::Load;
const OTHER_ORDERS: [Order; 3] = [Order::Size, Order::SizeRootLength, Order::Length];

impl Critical {
    /// Returns a series that has not begun.
    pub(crate) fn new(model: &Model) -> Result<Self> {
        let loads = most_loaded(model)?;
        let mut by_load = with_capacity(model.items.len(), "an order")?;
        by_load.extend(0..number(model.items.len()));
        by_load.sort_unstable_by_key(|&item| (Reverse(loads[index(item)]), item));
        let mut met = with_capacity(by_load.len(), "an order")?;
        met.extend(by_load.iter().map(|&item| loads[index(item)]));
        let mut levels = with_capacity(model.loads.len(), "an order")?;
        levels.extend(model.loads.iter().map(|load| load.grains));
        levels.sort_unstable_by_key(|&load| Reverse(load));
        Ok(Self {
            by_load,
            met,
            levels,
            sections: tuning::critical::FIRST_SECTIONS,
            crowded: Vec::new(),
            kept: Vec::new(),
            search: None,
            draft: None,
            space: Occupancy::new(model.loads.len())?,
            orders: Vec::new(),
            completions: 0,
            tries: 0,
            level: 0,
            target: 0,
        })
    }

    /// Searches once for a packing of the critical items, and completes the packing, if found.
    ///
    /// The first target is the bound, or the `goal`. If the critical items cannot soon be packed
    /// below the target, the next target is halfway to the best peak, and so on.
    ///
    /// A search that ends with its turn does not count as a try.
    pub(crate) fn step(
        &mut self,
        model: &Model,
        goal: u64,
        best: &mut Incumbent<'_>,
        chains: &mut EjectionChains,
        clock: &Clock<'_>,
    ) -> Result<()> {
        if let Some(draft) = self.draft.take() {
            self.press(model, &draft, best, chains, clock);
            return Ok(());
        }
        if self.search.is_none() && !self.begin(model, goal, best, clock)? {
            return Ok(());
        }
        let Some((part, search, turns)) = &mut self.search else { return Ok(()) };
        match search.step(part, self.target, turns, clock)? {
            Outcome::Found => {
                let offsets = search.offsets(part)?;
                self.search = None;
                let draft = self.complete(model, &offsets, best, clock)?;
                if self.kept.len() == model.items.len() {
                    self.give_up();
                } else if let Some(draft) = draft {
                    self.press(model, &draft, best, chains, clock);
                } else {
                    self.sections = self.sections.saturating_mul(tuning::critical::GROWTH);
                }
            }
            // If a part of the items does not fit, all items do not fit.
            Outcome::Impossible => {
                best.raise_bound(model.peak_from(self.target + 1), Stage::Critical);
                self.search = None;
            }
            Outcome::Undecided => {
                self.tries += usize::from(!clock.turn_is_over());
                let is_large = self.kept.len() > tuning::critical::MANY_ITEMS;
                let most =
                    if is_large { tuning::critical::TRIES_MANY } else { tuning::critical::TRIES };
                if self.tries >= most {
                    self.give_up();
                }
            }
        }
        Ok(())
    }

    /// Prepares the search for the next target; false if the search would be too large.
    fn begin(
        &mut self,
        model: &Model,
        goal: u64,
        best: &Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<bool> {
        let low = best.bound().max(goal);
        let below = whole(
            real(best.peak() - low)
                * libm::pow(tuning::critical::TARGET_STEP, f64::from(self.level)),
        )
        .max(1);
        self.target = match self.level {
            0 => low,
            _ => model.peak_from(best.peak() - below),
        };
        self.tries = 0;
        // All sections with the same load are critical, or none.
        let level = self.levels[self.sections.min(self.levels.len()) - 1];
        let count =
            self.met.partition_point(|&load| load >= level).max(tuning::critical::FEWEST_ITEMS);
        self.kept.clear();
        self.kept.extend_from_slice(&self.by_load[..count.min(self.by_load.len())]);
        self.kept.extend_from_slice(&self.crowded);
        self.keep_pinned_neighbors(model)?;
        self.kept.sort_unstable();
        self.kept.dedup();
        let part = model.restricted_to(&self.kept)?;
        let turns = Turns::new(&part, 0, clock);
        let entries: u64 = part.items.iter().map(|item| u64::from(item.length())).sum();
        if entries <= tuning::critical::LARGEST_PART
            && let Some(search) = Restarts::new(&part, clock)?
        {
            self.search = Some((part, search, turns));
        } else {
            self.give_up();
        }
        Ok(self.search.is_some())
    }

    /// Makes each pinned item critical that is live together with a critical item without a pin,
    /// which could otherwise take the pinned item's place.
    fn keep_pinned_neighbors(&mut self, model: &Model) -> Result<()> {
        if !model.has_pins() {
            return Ok(());
        }
        // By section: the number of earlier sections with a critical item without a pin.
        let mut open = filled(0_i64, model.loads.len() + 1, "sections")?;
        for it in self.kept.iter().map(|&item| &model.items[index(item)]) {
            if model.pin(it).is_none() {
                open[index(it.span.start)] += 1;
                open[index(it.span.end)] -= 1;
            }
        }
        let (mut depth, mut covered) = (0, 0);
        for section in &mut open {
            depth += core::mem::replace(section, covered);
            covered += i64::from(depth > 0);
        }
        let meets = |&(_, it): &(u32, &Item)| {
            model.pin(it).is_some() && open[index(it.span.start)] < open[index(it.span.end)]
        };
        let pinned = (0..).zip(&model.items).filter(meets);
        self.kept.extend(pinned.map(|(item, _)| item));
        Ok(())
    }

    /// Chooses a higher target and fewer critical sections.
    fn give_up(&mut self) {
        self.search = None;
        self.sections = (self.sections / tuning::critical::SHRINK_DIVISOR)
            .max(tuning::critical::FIRST_SECTIONS);
        self.crowded.clear();
        self.level =
            if self.level.unsigned_abs() < tuning::critical::TARGETS { self.level + 1 } else { 1 };
    }

    /// Returns all items in an order; nothing if the caller wants an answer before the end.
    fn ordered(
        &mut self,
        model: &Model,
        order: Order,
        clock: &Clock<'_>,
    ) -> Result<Option<Vec<u32>>> {
        if let Some((_, known)) = self.orders.iter().find(|(known, _)| *known == order) {
            return Ok(Some(known.clone()));
        }
        let sorted = first_fit::sorted(model, order, clock)?;
        if let Some(sorted) = &sorted {
            self.orders.push((order, sorted.clone()));
        }
        Ok(sorted)
    }

    /// Places the other items around the critical items, in one or two orders, and returns the
    /// packing with the fewest items above the target, if not too many.
    fn complete(
        &mut self,
        model: &Model,
        offsets: &[u64],
        best: &mut Incumbent<'_>,
        clock: &Clock<'_>,
    ) -> Result<Option<Vec<u64>>> {
        let mut fixed = filled(None, model.items.len(), "offsets")?;
        for (&item, &offset) in self.kept.iter().zip(offsets) {
            fixed[index(item)] = Some(offset);
        }
        let mut fewest: Option<(usize, Vec<u64>)> = None;
        let other = OTHER_ORDERS[self.completions % OTHER_ORDERS.len()];
        self.completions += 1;
        for order in [FIRST_ORDER, other] {
            let Some(mut order) = self.ordered(model, order, clock)? else { break };
            order.sort_by_key(|&item| fixed[index(item)].is_none());
            let mut crowded = Vec::new();
            for _ in 0..tuning::critical::COMPLETIONS {
                // Items without room in the first pass come directly after the critical and pinned
                // items.
                crowded.sort_unstable();
                order[self.kept.len()..].sort_by_key(|item| {
                    let is_pinned = model.pin(&model.items[index(*item)]).is_some();
                    (!is_pinned, crowded.binary_search(item).is_err())
                });
                crowded.clear();
                let stop = |count, space: &_| first_fit::is_up_at(count, space, clock);
                let offsets = first_fit::place_around(
                    model,
                    &order,
                    &first_fit::Fixed {
                        offsets: &fixed,
                        target: self.target,
                        most_crowded: tuning::greedy::MOST_CROWDED,
                    },
                    &mut crowded,
                    &mut self.space,
                    stop,
                )?;
                clock.spend(self.space.take_work());
                let Some(offsets) = offsets else { break };
                best.offer(Some(offsets.clone()), Stage::Critical);
                if fewest.as_ref().is_none_or(|&(fewest, _)| crowded.len() < fewest) {
                    fewest = Some((crowded.len(), offsets));
                }
                if crowded.is_empty() || crowded.len() > tuning::critical::FEW_CROWDED {
                    break;
                }
            }
            if crowded.len() <= tuning::critical::FEW_CROWDED {
                break;
            }
        }
        Ok(fewest.map(|(_, offsets)| offsets))
    }

    /// Brings a draft's items below the target, in this turn and the next turns; where items get
    /// stuck, more items become critical.
    fn press(
        &mut self,
        model: &Model,
        draft: &[u64],
        best: &mut Incumbent<'_>,
        chains: &mut EjectionChains,
        clock: &Clock<'_>,
    ) {
        if best.peak() <= self.target {
            return;
        }
        let (pressed, all) = chains.press(model, draft, self.target, clock);
        best.offer(Some(pressed.clone()), Stage::Critical);
        if !all {
            self.draft = Some(pressed);
            return;
        }
        let is_high =
            |&item: &u32| model.end_in_bytes(index(item), pressed[index(item)]) > self.target;
        let before = self.crowded.len();
        self.crowded.extend((0..number(pressed.len())).filter(is_high));
        if self.crowded.len() - before > tuning::critical::FEW_CROWDED {
            self.crowded.truncate(before);
            self.sections = self.sections.saturating_mul(tuning::critical::GROWTH);
        }
    }
}
