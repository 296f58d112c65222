//! Problems and packings as CSV, in the columns that minimalloc reads and writes.
//!
//! Required columns are `id`, `lower`, `upper` and `size`; `alignment`, `hint`, `gaps` and
//! `offset` may follow, in any order. Live ranges are half-open, unless the last step
//! is in a column `end`, which then is the last one inclusive. Gaps are separated by
//! spaces: `3-5` says that the buffer is not needed in steps 3 and 4, `3-5@8:16` that
//! only its bytes 8 to 15 are. Gaps may overlap, and reach past the live range. An offset pins
//! the buffer; an empty field or −1 leaves it free, where minimalloc takes −1 for an offset that
//! nothing has. Fields may be in quotes, as RFC 4180 has it.

use alloc::borrow::Cow;
use alloc::{
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};
use core::fmt::Write as _;
use core::ops::Range;

use super::names::Names;
use crate::base::{Alignment, BufferId, Error, LiveRange, Result, quoted};
use crate::pack::{Buffer, Gap, Packing, Problem, Space};

/// A problem of one space, and the names of its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvProblem {
    /// Names by [`BufferId`].
    pub names: Names,
    /// The problem.
    pub problem: Problem,
}

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    Size,
    Alignment,
    Hint,
    Gaps,
    Offset,
}

/// The meaning of the columns of one file.
#[derive(Debug)]
struct Header {
    columns: Vec<Column>,
    /// Number to add to the last step to make ranges half-open.
    inclusive: u32,
}

impl CsvProblem {
    /// Reads a problem whose buffers are all in `space`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCsv`] with the number of the wrong line, or the errors of [`Problem::new`].
    ///
    /// ```
    /// use arenaplan::format::CsvProblem;
    /// use arenaplan::pack::Space;
    /// let text = "id,lower,upper,size\na,0,2,100\nb,1,3,60\n";
    /// let csv = CsvProblem::parse(text, Space::default())?;
    /// assert_eq!(csv.names.get(1), Some("b"));
    /// assert_eq!(csv.problem.buffers()[1].bytes(), 60);
    /// let wrong = CsvProblem::parse("id,lower,upper,size\na,0,2,1e3\n", Space::default());
    /// assert_eq!(wrong.unwrap_err().to_string(), "line 2: size '1e3' is not a whole number");
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn parse(text: &str, space: Space) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut header: Option<Header> = None;
        let mut names = Names::default();
        let mut buffers = Vec::new();
        let mut record = csv::StringRecord::new();
        loop {
            let more = reader.read_record(&mut record);
            let at = |reason| Error::InvalidCsv { line: line_of(text, &record), reason };
            if !more.map_err(|error| at(error.to_string()))? {
                break;
            }
            if record.len() == 1 && record[0].trim_ascii().is_empty() {
                continue;
            }
            if let Some(header) = &header {
                let (name, buffer) = header.row(&record).map_err(at)?;
                names.push(name);
                buffers.push(buffer);
            } else {
                header = Some(Header::parse(&record).map_err(at)?);
            }
        }
        if header.is_none() {
            return Err(Error::InvalidCsv { line: 1, reason: "the file is empty".into() });
        }
        Ok(Self { names, problem: Problem::new(buffers, vec![space])? })
    }

    /// Returns the problem as CSV; with a packing, with its offsets as the last column.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidBuffer`] if a buffer needs bytes at one step that are not
    /// contiguous, which the format cannot say.
    pub fn to_csv(&self, packing: Option<&Packing>) -> Result<String> {
        let buffers = self.problem.buffers();
        let alignments = (0..buffers.len()).map(|buffer| {
            self.problem.alignment(BufferId::new(buffer)) // of the space, too
        });
        let alignments: Vec<_> = alignments.collect();
        let gaps = buffers.iter().enumerate().map(|(number, buffer)| gaps(number, buffer));
        let gaps = gaps.collect::<Result<Vec<_>>>()?;
        let aligned = alignments.iter().any(|&alignment| alignment != Alignment::BYTE);
        let hinted = buffers.iter().any(|buffer| buffer.hint().is_some());
        let gapped = gaps.iter().any(|gaps| !gaps.is_empty());
        let pinned = buffers.iter().any(|buffer| buffer.pin().is_some());

        let mut text = String::from("id,lower,upper,size");
        for (there, name) in [
            (aligned, ",alignment"),
            (hinted, ",hint"),
            (gapped, ",gaps"),
            (pinned || packing.is_some(), ",offset"),
        ] {
            text.push_str(if there { name } else { "" });
        }
        text.push('\n');
        for (number, buffer) in buffers.iter().enumerate() {
            let live = buffer.live();
            let name = field(self.names.get(number).unwrap_or_default());
            // Writing to a string cannot fail.
            let _ = write!(text, "{name},{},{},{}", live.start(), live.end(), buffer.bytes());
            if aligned {
                let _ = write!(text, ",{}", alignments[number]);
            }
            if hinted {
                let _ = match buffer.hint() {
                    Some(hint) => write!(text, ",{hint}"),
                    None => write!(text, ",-1"),
                };
            }
            if gapped {
                let _ = write!(text, ",{}", gaps[number]);
            }
            let offset = packing.map(|packing| packing.offsets()[number]).or(buffer.pin());
            match offset {
                Some(offset) => {
                    let _ = write!(text, ",{offset}");
                }
                None if pinned => text.push(','),
                None => {}
            }
            text.push('\n');
        }
        Ok(text)
    }
}

impl Header {
    /// Reads the first line.
    fn parse(line: &csv::StringRecord) -> Result<Self, String> {
        let mut columns = Vec::new();
        let mut inclusive = 0;
        for name in line.iter().map(str::trim_ascii) {
            let column = match name {
                "id" | "buffer" | "buffer_id" => Column::Id,
                "lower" | "start" | "begin" => Column::Lower,
                "upper" => Column::Upper,
                "end" => {
                    inclusive = 1;
                    Column::Upper
                }
                "size" => Column::Size,
                "alignment" => Column::Alignment,
                "hint" => Column::Hint,
                "gaps" => Column::Gaps,
                "offset" => Column::Offset,
                _ => return Err(format!("unknown column {}", quoted(name))),
            };
            if columns.contains(&column) {
                return Err(format!("column {} is there twice", quoted(name)));
            }
            columns.push(column);
        }
        let required = [
            (Column::Id, "id"),
            (Column::Lower, "lower"),
            (Column::Upper, "upper"),
            (Column::Size, "size"),
        ];
        match required.iter().find(|(column, _)| !columns.contains(column)) {
            Some((_, name)) => Err(format!("there is no column '{name}'")),
            None => Ok(Self { columns, inclusive }),
        }
    }

    /// Reads another line.
    fn row<'a>(&self, row: &'a csv::StringRecord) -> Result<(&'a str, Buffer), String> {
        let (mut name, mut gaps) = ("", "");
        let (mut lower, mut upper, mut size) = (0, 0, 0);
        let (mut alignment, mut hint, mut pin) = (1, None, None);
        let mut fields = row.iter().map(str::trim_ascii);
        for (position, column) in self.columns.iter().enumerate() {
            let Some(field) = fields.next() else {
                let there = self.columns.len();
                return Err(format!("there are {position} fields, and {there} columns"));
            };
            match column {
                Column::Id => name = field,
                Column::Lower => lower = whole("lower", field)?,
                Column::Upper => upper = whole("upper", field)?,
                Column::Size => size = whole("size", field)?,
                Column::Alignment => alignment = optional("alignment", field)?.unwrap_or(1),
                Column::Hint => hint = optional("hint", field)?,
                Column::Gaps => gaps = field,
                Column::Offset => pin = optional("offset", field)?,
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
        let alignment = Alignment::new(alignment).map_err(|error| error.to_string())?;
        let mut buffer = buffer.with_alignment(alignment);
        if let Some(hint) = hint {
            buffer = buffer.with_hint(hint);
        }
        if let Some(pin) = pin {
            buffer = buffer.with_pin(pin);
        }
        Ok((name, buffer))
    }

    /// Returns a range of steps as the file means it.
    fn range(&self, lower: u64, upper: u64) -> Result<LiveRange, String> {
        let step = |step: u64| {
            u32::try_from(step)
                .map_err(|_| format!("step {step} is past the largest, {}", u32::MAX))
        };
        let (start, end) = (step(lower)?, step(upper.saturating_add(self.inclusive.into()))?);
        LiveRange::new(start, end).map_err(|_| format!("the live range {start}..{end} is empty"))
    }

    /// Returns a buffer of `size` bytes with the gaps of a text in its live range.
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
            Error::InvalidBuffer { reason, .. } => reason,
            other => other.to_string(),
        })
    }
}

/// Returns the number of the line that a record begins in. The position of a record is before
/// the empty lines that precede it.
fn line_of(text: &str, record: &csv::StringRecord) -> usize {
    let Some(position) = record.position() else { return 1 };
    let line = usize::try_from(position.line()).unwrap_or(usize::MAX);
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let blank = text.as_bytes().get(start..).unwrap_or_default().iter();
    let blank = blank.take_while(|byte| matches!(byte, b'\r' | b'\n'));
    line.saturating_add(blank.filter(|&&byte| byte == b'\n').count())
}

/// Returns text as a field of RFC 4180, in quotes where a reader would change it otherwise.
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

/// Returns the gaps of a buffer as CSV.
fn gaps(number: usize, buffer: &Buffer) -> Result<String> {
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
        let (start, end) = (steps.start(), steps.end());
        if window.start == window.end {
            format!("{start}-{end}")
        } else {
            format!("{start}-{end}@{}:{}", window.start, window.end)
        }
    });
    Ok(words.collect::<Vec<_>>().join(" "))
}
