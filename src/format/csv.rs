//! Problems and packings as CSV, in the columns that minimalloc reads and writes.
//!
//! Required columns are `id`, `lower`, `upper` and `size`; `alignment`, `hint`, `gaps` and `offset`
//! may follow, in any order. Live ranges are half-open, unless the last step is in a column `end`,
//! which is inclusive. Gaps are separated by spaces: `3-5` says that the buffer is not needed in
//! steps 3 and 4, `3-5@8:16` that only bytes 8 to 15 are needed. Gaps may overlap, and reach past
//! the live range. An offset pins the buffer; an empty field or −1 leaves the buffer free.
//! minimalloc takes −1 for an offset that no buffer has. Fields may be in quotes, as in RFC 4180.
//!
//! Further columns that minimalloc does not know: `space`, the memory of a buffer; `spaces`, the
//! permitted memories, separated by spaces; `lo` and `hi`, the bytes of the space that the buffer
//! may have; `group`, a name for buffers with the same offset; `may_overlap`, `apart` and
//! `separate`, identifiers of other buffers, separated by spaces: buffers that may share bytes with
//! this buffer although both are live, buffers that never do, and buffers in other spaces. An
//! alignment need not be a power of two. Steps may have 64 bits: the problem then counts the
//! different steps in the file.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::{
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};
use core::fmt::Write as _;
use core::ops::Range;

use crate::base::{BufferId, Error, LiveRange, MAX_BYTES, Result, SpaceId, Step, gcd, quoted};
use crate::pack::{Buffer, Gap, Packing, Problem, Rules, Space};

/// A problem with buffer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvProblem {
    /// Names by [`BufferId`].
    pub names: Vec<String>,
    /// The problem.
    pub problem: Problem,
    /// Names of the buffer groups, by number.
    pub groups: Vec<String>,
    /// If steps in the file have more than 32 bits: for each step of the problem, the step in the
    /// file, in order. Empty otherwise.
    pub moments: Vec<u64>,
}

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CsvColumn {
    Id,
    Lower,
    Upper,
    Size,
    Alignment,
    Hint,
    Gaps,
    Offset,
    Space,
    Spaces,
    Group,
    Lo,
    Hi,
    /// A column of [`PAIRS`].
    Pairs(usize),
}

/// The columns that list other buffers, in the order of the fields of [`Rules`].
const PAIRS: [&str; 3] = ["may_overlap", "apart", "separate"];

/// A column that not every file has: the name, and a function that writes the field of a buffer.
type Column<'a> = (&'static str, Box<dyn Fn(&mut String, usize) + 'a>);

/// The meaning of the columns in one file.
#[derive(Debug)]
struct Header {
    columns: Vec<CsvColumn>,
    /// Number to add to the last step to make ranges half-open.
    inclusive: u32,
    /// The different steps, if some have more than 32 bits.
    moments: Vec<u64>,
}

/// One line: a buffer, and names that other lines explain.
#[derive(Debug)]
struct CsvRow<'a> {
    name: &'a str,
    buffer: Buffer,
    space: &'a str,
    /// Names of the permitted spaces.
    spaces: &'a str,
    group: &'a str,
    /// By column of [`PAIRS`].
    pairs: [&'a str; 3],
}

/// Names of spaces, groups and buffer pairs, while a file is read.
#[derive(Debug)]
struct ProblemReader {
    names: Vec<String>,
    buffers: Vec<Buffer>,
    /// The description of every space that `described` does not list.
    space: Space,
    /// The space for buffers without a space name, then the others.
    spaces: Vec<Space>,
    /// Whether a buffer is in each space.
    is_used: Vec<bool>,
    /// Whether `described` lists the first space.
    first_is_described: bool,
    groups: BTreeMap<String, u32>,
    /// By column of [`PAIRS`]: lines, buffers, and the identifiers that each lists.
    pairs: [Vec<(usize, BufferId, String)>; 3],
}

impl ProblemReader {
    fn new(space: Space, mut described: Vec<Space>) -> Self {
        let first = described.iter().position(|it| it.name() == space.name());
        let first_is_described = first.is_some();
        let first = first.map_or_else(|| space.clone(), |place| described.remove(place));
        described.insert(0, first);
        Self {
            names: Vec::new(),
            buffers: Vec::new(),
            space,
            is_used: vec![false; described.len()],
            first_is_described,
            spaces: described,
            groups: BTreeMap::new(),
            pairs: Default::default(),
        }
    }

    /// Returns the number of the space called `name`, which may be a new space.
    fn space(&mut self, name: &str) -> SpaceId {
        let known = self.spaces.iter().position(|it| it.name() == name);
        let place = if name.is_empty() { 0 } else { known.unwrap_or(self.spaces.len()) };
        if place == self.spaces.len() {
            self.spaces.push(self.space.clone().renamed(name));
            self.is_used.push(false);
        }
        self.is_used[place] = true;
        SpaceId::new(place)
    }

    /// Adds the buffer on a line.
    fn add(&mut self, line: usize, row: CsvRow<'_>) -> Result<(), String> {
        let CsvRow { name, mut buffer, space, spaces, group, pairs } = row;
        let id = BufferId::new(self.buffers.len());
        if !space.is_empty() && !spaces.is_empty() {
            return Err("there are both a space and spaces".into());
        }
        let names: Vec<&str> = spaces.split_whitespace().collect();
        let names = if names.is_empty() { vec![space] } else { names };
        let choice: Vec<SpaceId> = names.into_iter().map(|name| self.space(name)).collect();
        buffer = buffer.with_spaces(choice).map_err(|error| error.to_string())?;
        if !group.is_empty() {
            let next = u32::try_from(self.groups.len()).map_err(|_| "too many groups")?;
            buffer = buffer.with_group(*self.groups.entry(group.into()).or_insert(next));
        }
        for (lists, others) in self.pairs.iter_mut().zip(pairs) {
            if !others.is_empty() {
                lists.push((line, id, others.into()));
            }
        }
        self.names.push(name.into());
        self.buffers.push(buffer);
        Ok(())
    }

    /// Returns the buffer pairs that a column lists.
    fn pairs(&self, column: usize) -> Result<Vec<(BufferId, BufferId)>> {
        let (column, lists) = (PAIRS[column], &self.pairs[column]);
        if lists.is_empty() {
            return Ok(Vec::new());
        }
        let mut by_name: BTreeMap<&str, Option<BufferId>> = BTreeMap::new();
        for (number, name) in self.names.iter().enumerate() {
            let id = Some(BufferId::new(number));
            by_name.entry(name).and_modify(|it| *it = None).or_insert(id);
        }
        let mut pairs = Vec::new();
        for (line, id, others) in lists {
            for other in others.split_whitespace() {
                let reason = match by_name.get(other) {
                    Some(&Some(other)) => {
                        pairs.push((*id, other));
                        continue;
                    }
                    Some(None) => "that several buffers have",
                    None => "that no buffer has",
                };
                let reason = format!("{column} names {}, an id {reason}", quoted(other));
                return Err(Error::InvalidCsv { line: *line, reason });
            }
        }
        Ok(pairs)
    }

    /// Returns the problem with all lines.
    fn finish(mut self, moments: Vec<u64>) -> Result<CsvProblem> {
        let rules =
            Rules { may_overlap: self.pairs(0)?, apart: self.pairs(1)?, separate: self.pairs(2)? };
        let is_named = |place: usize| place > 0 || self.first_is_described;
        let unused = (0..self.spaces.len()).find(|&it| !self.is_used[it] && is_named(it));
        if let Some(place) = unused {
            let reason = format!("no line is in space {}", quoted(self.spaces[place].name()));
            return Err(Error::InvalidCsv { line: 1, reason });
        }
        if !self.is_used[0] && self.spaces.len() > 1 {
            self.spaces.remove(0);
            for buffer in &mut self.buffers {
                let spaces = buffer.spaces().iter().map(|it| SpaceId::new(it.index() - 1));
                let spaces: Vec<SpaceId> = spaces.collect();
                *buffer = buffer.clone().with_spaces(spaces)?;
            }
        }
        let mut groups = vec![String::new(); self.groups.len()];
        for (name, number) in self.groups {
            groups[usize::try_from(number).unwrap_or(usize::MAX)] = name;
        }
        let problem = Problem::with_rules(self.buffers, self.spaces, rules)?;
        Ok(CsvProblem { names: self.names, problem, groups, moments })
    }
}

impl CsvProblem {
    /// Reads a problem whose buffers are in `space`, or in a space that differs only in the name,
    /// which is in the column `space`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCsv`] with the number of the wrong line, or an error from [`Problem::new`].
    ///
    /// ```
    /// use arenaplan::format::CsvProblem;
    /// use arenaplan::pack::Space;
    /// let text = "id,lower,upper,size\na,0,2,100\nb,1,3,60\n";
    /// let csv = CsvProblem::parse(text, Space::default())?;
    /// assert_eq!(csv.names[1], "b");
    /// assert_eq!(csv.problem.buffers()[1].bytes(), 60);
    /// let wrong = CsvProblem::parse("id,lower,upper,size\na,0,2,1e3\n", Space::default());
    /// assert_eq!(wrong.unwrap_err().to_string(), "line 2: size '1e3' is not a whole number");
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn parse(text: &str, space: Space) -> Result<Self> {
        Self::parse_in(text, space, Vec::new())
    }

    /// Reads a problem like [`CsvProblem::parse`]. Some spaces are `described` by name: each with
    /// its own capacity, alignment and reserved bytes.
    ///
    /// # Errors
    ///
    /// As [`CsvProblem::parse`], and [`Error::InvalidCsv`] if no line is in a described space.
    ///
    /// ```
    /// use arenaplan::format::CsvProblem;
    /// use arenaplan::pack::Space;
    /// let text = "id,lower,upper,size,space\na,0,2,100,sram\nb,1,3,60,dram\n";
    /// let sram = Space::new("sram").with_capacity(128);
    /// let csv = CsvProblem::parse_in(text, Space::default(), vec![sram])?;
    /// let capacities: Vec<_> = csv.problem.spaces().iter().map(Space::capacity).collect();
    /// assert_eq!(capacities, [Some(128), None]);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn parse_in(text: &str, space: Space, described: Vec<Space>) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut header: Option<Header> = None;
        let mut reader = ProblemReader::new(space, described);
        each_record(text, |line, record| {
            if let Some(header) = &header {
                return reader.add(line, header.row(record)?);
            }
            let mut first = Header::parse(record)?;
            if has_long_number(text) {
                first.moments = first.moments(text);
            }
            header = Some(first);
            Ok(())
        })?;
        match header {
            Some(header) => reader.finish(header.moments),
            None => Err(Error::InvalidCsv { line: 1, reason: "the file is empty".into() }),
        }
    }

    /// Returns the problem as CSV; with a packing, the last column has the offsets.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidBuffer`] if a buffer needs bytes at one step that are not
    /// contiguous, which the format cannot say.
    pub fn to_csv(&self, packing: Option<&Packing>) -> Result<String> {
        if let Some(packing) = packing.filter(|_| self.problem.has_choice()) {
            // Each buffer is in the space that was chosen, and not in one of several.
            let spaces = (0..self.problem.buffers().len()).map(BufferId::new);
            let spaces: Vec<SpaceId> = spaces.map(|id| packing.space_of(id)).collect();
            let problem = self.problem.in_spaces(&spaces)?;
            return Self { problem, ..self.clone() }.to_csv(Some(packing));
        }
        let columns = self.columns(packing)?;
        let mut text = String::from("id,lower,upper,size");
        for (name, _) in &columns {
            put(&mut text, format_args!(",{name}"));
        }
        text.push('\n');
        for (number, buffer) in self.problem.buffers().iter().enumerate() {
            let name = field(self.name(number));
            let (live, bytes) = (buffer.live(), buffer.bytes());
            let (start, end) = (self.step(live.start()), self.step(live.end()));
            put(&mut text, format_args!("{name},{start},{end},{bytes}"));
            for (_, write) in &columns {
                text.push(',');
                write(&mut text, number);
            }
            text.push('\n');
        }
        Ok(text)
    }

    /// Returns a buffer's name; empty if there is none.
    fn name(&self, buffer: usize) -> &str {
        self.names.get(buffer).map_or("", String::as_str)
    }

    /// Returns a step of the problem as the file states the step.
    fn step(&self, step: Step) -> u64 {
        self.moments.get(step.index()).copied().unwrap_or(step.get().into())
    }

    /// Returns the columns that the problem and the packing need beside the required columns.
    fn columns<'a>(&'a self, packing: Option<&'a Packing>) -> Result<Vec<Column<'a>>> {
        let (buffers, spaces) = (self.problem.buffers(), self.problem.spaces());
        let mut columns: Vec<Column<'a>> = Vec::new();
        let alignments = buffers.iter().enumerate().map(|(number, buffer)| {
            let id = BufferId::new(number);
            // The alignment of the space suffices if there is no choice.
            let of_space = self.problem.alignment(id);
            let own = if buffer.has_choice() { buffer.alignment() } else { of_space };
            let alignment = own.bytes();
            let multiple = buffer.multiple_of();
            alignment / gcd(alignment, multiple) * multiple
        });
        let alignments: Vec<u64> = alignments.collect();
        if alignments.iter().any(|&alignment| alignment != 1) {
            columns.push(("alignment", Box::new(move |text, at| put(text, alignments[at]))));
        }
        if buffers.iter().any(|buffer| buffer.hint().is_some()) {
            let write = move |text: &mut String, at: usize| match buffers[at].hint() {
                Some(hint) => put(text, hint),
                None => put(text, -1),
            };
            columns.push(("hint", Box::new(write)));
        }
        let step = |step| self.step(step);
        let gaps = buffers.iter().enumerate().map(|(number, buffer)| gaps(number, buffer, &step));
        let gaps = gaps.collect::<Result<Vec<_>>>()?;
        if gaps.iter().any(|gaps| !gaps.is_empty()) {
            columns.push(("gaps", Box::new(move |text, at| put(text, &gaps[at]))));
        }
        if packing.is_some() || buffers.iter().any(|buffer| buffer.pin().is_some()) {
            let write = move |text: &mut String, at: usize| {
                let offset = packing.map(|packing| packing.offsets()[at]).or(buffers[at].pin());
                if let Some(offset) = offset {
                    put(text, offset);
                }
            };
            columns.push(("offset", Box::new(write)));
        }
        if spaces.len() > 1 {
            let write = move |text: &mut String, at: usize| {
                let space = &spaces[buffers[at].space().index()];
                put(text, field(if buffers[at].has_choice() { "" } else { space.name() }));
            };
            columns.push(("space", Box::new(write)));
        }
        if let Some(buffer) = buffers.iter().position(Buffer::has_choice) {
            if let Some(name) = spaces.iter().map(Space::name).find(|name| is_unlisted(name)) {
                let name = quoted(name);
                let reason = format!("no list of spaces can name {name}, as that name has blanks");
                return Err(Error::InvalidBuffer { buffer, reason });
            }
            let write = move |text: &mut String, at: usize| {
                let listed = buffers[at].spaces().iter().filter(|_| buffers[at].has_choice());
                put_list(text, listed.map(|it| spaces[it.index()].name()));
            };
            columns.push(("spaces", Box::new(write)));
        }
        if buffers.iter().any(|buffer| buffer.group().is_some()) {
            let write = move |text: &mut String, at: usize| {
                let Some(group) = buffers[at].group() else { return };
                match usize::try_from(group).ok().and_then(|group| self.groups.get(group)) {
                    Some(name) => put(text, field(name)),
                    None => put(text, group),
                }
            };
            columns.push(("group", Box::new(write)));
        }
        if buffers.iter().any(|buffer| buffer.range().is_some()) {
            let write = move |text: &mut String, at: usize| match buffers[at].range() {
                Some(range) if range.end < MAX_BYTES => {
                    put(text, format_args!("{},{}", range.start, range.end));
                }
                Some(range) => put(text, format_args!("{},", range.start)),
                None => text.push(','),
            };
            columns.push(("lo,hi", Box::new(write)));
        }
        let rules = self.problem.rules();
        let pairs = [&rules.may_overlap, &rules.apart, &rules.separate];
        for (name, pairs) in PAIRS.into_iter().zip(pairs) {
            let lists = self.by_first(pairs)?;
            if !lists.is_empty() {
                let write = move |text: &mut String, at: usize| {
                    let others = lists.get(&BufferId::new(at)).into_iter().flatten();
                    put_list(text, others.map(|id| self.name(id.index())));
                };
                columns.push((name, Box::new(write)));
            }
        }
        Ok(columns)
    }

    /// Returns the larger numbers in each pair, by the smaller number.
    fn by_first(
        &self,
        pairs: &[(BufferId, BufferId)],
    ) -> Result<BTreeMap<BufferId, Vec<BufferId>>> {
        let mut lists: BTreeMap<BufferId, Vec<BufferId>> = BTreeMap::new();
        for &(one, other) in pairs {
            if is_unlisted(self.name(other.index())) {
                let reason = "no list of ids can name it, as its name has spaces".into();
                return Err(Error::InvalidBuffer { buffer: other.index(), reason });
            }
            lists.entry(one).or_default().push(other);
        }
        Ok(lists)
    }
}

/// Returns whether no list with blanks between names can have a name.
fn is_unlisted(name: &str) -> bool {
    name.is_empty() || name.contains(char::is_whitespace)
}

/// Appends to text.
fn put(text: &mut String, more: impl core::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{more}");
}

/// Appends a field with names, with blanks between.
fn put_list<'a>(text: &mut String, names: impl Iterator<Item = &'a str>) {
    put(text, field(&names.collect::<Vec<_>>().join(" ")));
}

/// Calls `visit` with the line and the fields of each record that is not blank.
fn each_record(
    text: &str,
    mut visit: impl FnMut(usize, &csv::StringRecord) -> Result<(), String>,
) -> Result<()> {
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut record = csv::StringRecord::new();
    loop {
        let more = reader.read_record(&mut record);
        let line = line_of(text, &record);
        let at = |reason| Error::InvalidCsv { line, reason };
        if !more.map_err(|error| at(error.to_string()))? {
            return Ok(());
        }
        if record.len() == 1 && record[0].trim_ascii().is_empty() {
            continue;
        }
        visit(line, &record).map_err(at)?;
    }
}

/// Returns whether ten digits or more stand in a row, as in all numbers of more than 32 bits.
fn has_long_number(text: &str) -> bool {
    let mut digits = 0;
    text.bytes().any(|byte| {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        digits == 10
    })
}

impl Header {
    /// Returns the different steps in all lines in order, if any step has more than 32 bits.
    fn moments(&self, text: &str) -> Vec<u64> {
        let mut moments = Vec::new();
        // Lines with an error are read again, and refused then.
        let _ = each_record(text, |_, record| {
            let fields = record.iter().map(str::trim_ascii).zip(&self.columns);
            for (field, column) in fields {
                match column {
                    CsvColumn::Lower => moments.extend(whole("lower", field)),
                    CsvColumn::Upper => {
                        let end = whole("upper", field);
                        moments.extend(end.map(|it| it.saturating_add(self.inclusive.into())));
                    }
                    CsvColumn::Gaps => {
                        for gap in field.split_whitespace() {
                            let steps = gap.split('@').next().and_then(|it| it.split_once('-'));
                            let Some((first, last)) = steps else { continue };
                            moments.extend(whole("gap", first));
                            let end = whole("gap", last);
                            moments.extend(end.map(|it| it.saturating_add(self.inclusive.into())));
                        }
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        moments.sort_unstable();
        moments.dedup();
        if moments.last().is_none_or(|&last| last <= u32::MAX.into()) {
            moments.clear();
        }
        moments
    }

    /// Reads the first line.
    fn parse(line: &csv::StringRecord) -> Result<Self, String> {
        let mut columns = Vec::new();
        let mut inclusive = 0;
        for name in line.iter().map(str::trim_ascii) {
            let column = match name {
                "id" | "buffer" | "buffer_id" => CsvColumn::Id,
                "lower" | "start" | "begin" => CsvColumn::Lower,
                "upper" => CsvColumn::Upper,
                "end" => {
                    inclusive = 1;
                    CsvColumn::Upper
                }
                "size" => CsvColumn::Size,
                "alignment" => CsvColumn::Alignment,
                "hint" => CsvColumn::Hint,
                "gaps" => CsvColumn::Gaps,
                "offset" => CsvColumn::Offset,
                "space" => CsvColumn::Space,
                "spaces" => CsvColumn::Spaces,
                "group" => CsvColumn::Group,
                "lo" => CsvColumn::Lo,
                "hi" => CsvColumn::Hi,
                _ => match PAIRS.iter().position(|it| *it == name) {
                    Some(place) => CsvColumn::Pairs(place),
                    None => return Err(format!("unknown column {}", quoted(name))),
                },
            };
            if columns.contains(&column) {
                return Err(format!("column {} is there twice", quoted(name)));
            }
            columns.push(column);
        }
        let required = [
            (CsvColumn::Id, "id"),
            (CsvColumn::Lower, "lower"),
            (CsvColumn::Upper, "upper"),
            (CsvColumn::Size, "size"),
        ];
        match required.iter().find(|(column, _)| !columns.contains(column)) {
            Some((_, name)) => Err(format!("there is no column '{name}'")),
            None => Ok(Self { columns, inclusive, moments: Vec::new() }),
        }
    }

    /// Reads another line.
    fn row<'a>(&self, row: &'a csv::StringRecord) -> Result<CsvRow<'a>, String> {
        let (mut name, mut gaps) = ("", "");
        let (mut lower, mut upper, mut size) = (0, 0, 0);
        let (mut alignment, mut hint, mut pin) = (1, None, None);
        let (mut space, mut spaces, mut group) = ("", "", "");
        let mut pairs = [""; 3];
        let (mut lo, mut hi) = (None, None);
        let mut fields = row.iter().map(str::trim_ascii);
        for (position, column) in self.columns.iter().enumerate() {
            let Some(field) = fields.next() else {
                let there = self.columns.len();
                return Err(format!("there are {position} fields, and {there} columns"));
            };
            match column {
                CsvColumn::Id => name = field,
                CsvColumn::Lower => lower = whole("lower", field)?,
                CsvColumn::Upper => upper = whole("upper", field)?,
                CsvColumn::Size => size = whole("size", field)?,
                CsvColumn::Alignment => alignment = optional("alignment", field)?.unwrap_or(1),
                CsvColumn::Hint => hint = optional("hint", field)?,
                CsvColumn::Gaps => gaps = field,
                CsvColumn::Offset => pin = optional("offset", field)?,
                CsvColumn::Space => space = field,
                CsvColumn::Spaces => spaces = field,
                CsvColumn::Group => group = field,
                CsvColumn::Lo => lo = optional("lo", field)?,
                CsvColumn::Hi => hi = optional("hi", field)?,
                CsvColumn::Pairs(place) => pairs[*place] = field,
            }
        }
        if fields.next().is_some() {
            return Err(format!("there are more fields than the {} columns", self.columns.len()));
        }
        let steps = self.range(lower, upper)?;
        let buffer = if gaps.is_empty() {
            Buffer::new(size, steps)
        } else {
            self.with_gaps(size, steps, gaps)?
        };
        let mut buffer = buffer.with_multiple_of(alignment).map_err(|error| error.to_string())?;
        if let Some(hint) = hint {
            buffer = buffer.with_hint(hint);
        }
        if let Some(pin) = pin {
            buffer = buffer.with_pin(pin);
        }
        if lo.is_some() || hi.is_some() {
            let (lo, hi) = (lo.unwrap_or(0), hi.unwrap_or(MAX_BYTES));
            if lo > hi {
                return Err(format!("lo {lo} is above hi {hi}"));
            }
            buffer = buffer.with_range(lo..hi);
        }
        Ok(CsvRow { name, buffer, space, spaces, group, pairs })
    }

    /// Returns the step range that the file states.
    fn range(&self, lower: u64, upper: u64) -> Result<LiveRange, String> {
        let step = |step: u64| {
            if let Ok(rank) = self.moments.binary_search(&step) {
                return u32::try_from(rank).map_err(|_| "too many different steps".into());
            }
            u32::try_from(step)
                .map_err(|_| format!("step {step} is past the largest, {}", u32::MAX))
        };
        let upper = upper.saturating_add(self.inclusive.into());
        LiveRange::new(step(lower)?, step(upper)?)
            .map_err(|_| format!("the live range {lower}..{upper} is empty"))
    }

    /// Returns a buffer with `size` bytes and the gaps in `text` in the live range.
    fn with_gaps(&self, size: u64, live: LiveRange, text: &str) -> Result<Buffer, String> {
        let mut gaps = Vec::new();
        for gap in text.split_whitespace() {
            let wrong = || format!("gap {} is not like 3-5 or 3-5@8:16", quoted(gap));
            let (steps, window) = gap.split_once('@').map_or((gap, None), |(a, b)| (a, Some(b)));
            let (first, last) = steps.split_once('-').ok_or_else(wrong)?;
            let steps = self.range(whole("gap", first)?, whole("gap", last)?)?;
            let bytes = match window {
                None => 0..0,
                Some(window) => {
                    let (low, high) = window.split_once(':').ok_or_else(wrong)?;
                    whole("gap", low)?..whole("gap", high)?
                }
            };
            if bytes.start > bytes.end || bytes.end > size {
                return Err(format!("gap {} is not inside the buffer's {size} bytes", quoted(gap)));
            }
            gaps.push(Gap { steps, bytes });
        }
        Buffer::with_gaps(size, live, &gaps).map_err(|error| match error {
            crate::pack::Error::InvalidBuffer { reason, .. } => reason,
            other => other.to_string(),
        })
    }
}

/// Returns the number of the line at which a record begins. The position of a record is before the
/// empty lines that precede the record.
fn line_of(text: &str, record: &csv::StringRecord) -> usize {
    let Some(position) = record.position() else { return 1 };
    let line = usize::try_from(position.line()).unwrap_or(usize::MAX);
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let blank = text.as_bytes().get(start..).unwrap_or_default().iter();
    let blank = blank.take_while(|byte| matches!(byte, b'\r' | b'\n'));
    line.saturating_add(blank.filter(|&&byte| byte == b'\n').count())
}

/// Returns text as an RFC 4180 field, in quotes where a reader would change the text otherwise.
fn field(text: &str) -> Cow<'_, str> {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if text.bytes().any(special) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// Reads a whole number: digits and nothing else, not even a plus sign.
fn whole(what: &str, field: &str) -> Result<u64, String> {
    let append = |number: u64, byte: u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    let number = if field.is_empty() { None } else { field.bytes().try_fold(0, append) };
    number.ok_or_else(|| format!("{what} {} is not a whole number", quoted(field)))
}

/// Reads a whole number that may be absent: an empty field, or −1.
fn optional(what: &str, field: &str) -> Result<Option<u64>, String> {
    if field.is_empty() || field == "-1" { Ok(None) } else { whole(what, field).map(Some) }
}

/// Returns a buffer's gaps as CSV, with the steps that `step` returns.
fn gaps(number: usize, buffer: &Buffer, step: &impl Fn(Step) -> u64) -> Result<String> {
    if buffer.solid().is_some() || buffer.bytes() == 0 {
        return Ok(String::new());
    }
    let mut rectangles: Vec<(Range<u64>, LiveRange)> = buffer.rectangles().collect();
    rectangles.sort_unstable_by_key(|(bytes, live)| (bytes.start, live.start()));
    let mut moments: Vec<_> =
        rectangles.iter().flat_map(|(_, live)| [live.start(), live.end()]).collect();
    moments.sort_unstable();
    moments.dedup();
    let mut gaps: Vec<(LiveRange, Range<u64>)> = Vec::new();
    for pair in moments.windows(2) {
        let steps = LiveRange::new(pair[0].get(), pair[1].get())?;
        let mut window = 0..0;
        for (bytes, _) in rectangles.iter().filter(|(_, live)| live.overlaps(steps)) {
            if window.start == window.end {
                window = bytes.clone();
            } else if window.end == bytes.start {
                window.end = bytes.end;
            } else {
                let reason = "it needs bytes at one step that are not contiguous".into();
                return Err(Error::InvalidBuffer { buffer: number, reason });
            }
        }
        match gaps.last_mut() {
            Some((last, same)) if *same == window => *last = last.hull(steps),
            _ => gaps.push((steps, window)),
        }
    }
    gaps.retain(|(_, window)| *window != (0..buffer.bytes()));
    let words = gaps.iter().map(|(steps, window)| {
        let (start, end) = (step(steps.start()), step(steps.end()));
        if window.start == window.end {
            format!("{start}-{end}")
        } else {
            format!("{start}-{end}@{}:{}", window.start, window.end)
        }
    });
    Ok(words.collect::<Vec<_>>().join(" "))
}
