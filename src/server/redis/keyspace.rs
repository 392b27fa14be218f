//! The commands KEYS, SCAN, and RANDOMKEY, and the CLUSTER commands about the keys of a slot.
//!
//! In: patterns and cursors. Out: keys, a bounded number in each pass. If a table's keys are plain bytes, only the rows whose
//! keys begin with the literal prefix of the pattern are visited.

use std::sync::Arc;

use super::keys::{KeyTexts, damaged, key_steps, number};
use super::lookup::must_wait_for;
use super::work::{Keys, Outcome, SlotCounting, SlotTask, Work, WorkStep};
use super::{NOT_AN_INTEGER, Out, Replied, SYNTAX};
use crate::Lookup;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::protocol::resp::commands::{Id, resolve};
use crate::protocol::resp::{Args, Command, Glob, PART_LEN_MAX_BYTES, Reply, integer};
use crate::server::responses::Responses;
use crate::server::table::Generation;
use crate::server::turns::Steps;
use crate::slots::{SLOT_COUNT, slot_of};
use crate::store::{ColdLookup, PageLimits, Prefetched, RangeEnd, RangeLookup, Rows, Side, Store, prefix_end};
use crate::typed::Schema;

/// The maximum total length of the keys in a reply to SCAN, not counting the last key.
const SCAN_LEN_MAX_BYTES: usize = 64 << 10;
/// The default number of rows that SCAN visits, and of fields that HSCAN visits.
const SCAN_COUNT_DEFAULT: usize = 10;
pub(super) const PATTERN_LEN_MAX_BYTES: usize = 1024;
/// The number of pattern operations that count as one step.
const STEP_GLOB_OPS: usize = 64;
const LONE_ROW_STEPS: usize = 8;

/// The number of bits of a cursor that store the number of the next row or column. The higher bits are those of its
/// [`CursorOwner`].
const CURSOR_ROW_BITS: u32 = 32;
const CURSOR_TAG_BITS: u32 = 21;
/// Clients that parse cursors as floating-point numbers, as JavaScript does, round larger cursors.
const CURSOR_BITS_MAX: u32 = f64::MANTISSA_DIGITS;
const _: () = assert!(CURSOR_ROW_BITS + CURSOR_TAG_BITS <= CURSOR_BITS_MAX);

struct Pattern {
    /// The compiled pattern. `None` if all keys match.
    glob: Option<Glob>,
    /// The slot of the keys. `None` for all slots.
    slot: Option<u16>,
}

impl Pattern {
    fn new(pattern: Option<&[u8]>, steps: &mut Steps) -> Result<Self, String> {
        let glob = pattern.filter(|pattern| pattern != b"*");
        Ok(Pattern { glob: glob.map(|glob| compile(glob, steps)).transpose()?, slot: None })
    }

    fn of(keys: &Keys, command: &Command<'_>, steps: &mut Steps) -> Result<Self, String> {
        match keys.slot {
            None => Pattern::new(command.args().nth(1), steps),
            slot => Ok(Pattern { glob: None, slot }),
        }
    }

    fn is_any(&self) -> bool {
        self.glob.is_none() && self.slot.is_none()
    }

    /// Returns the lookup of [`Pattern::rows`], with `end` as the buffer for the end of its range. Returns `None` if it
    /// looks nothing up.
    fn lookup<'k>(&'k self, store: &Store, end: &'k mut Option<Vec<u8>>) -> Option<RangeLookup<Key<'k>>> {
        let prefix = Some(self.prefix()).filter(|prefix| store.key_type() == KeyType::BYTES && !prefix.is_empty())?;
        *end = prefix_end(prefix);
        let end = end.as_deref().map(|end| RangeEnd::Beside(Key::Bytes(end), Side::Before));
        Some(RangeLookup {
            start: RangeEnd::Beside(Key::Bytes(prefix), Side::Before),
            end: end.unwrap_or(RangeEnd::AfterAll),
            prefetched: Prefetched::Nothing,
        })
    }

    /// Returns a range of rows that contains all rows whose keys match.
    fn rows<'s>(&self, store: &'s Store) -> Rows<'s> {
        match store.key_type() {
            KeyType::BYTES if !self.prefix().is_empty() => store.prefix(self.prefix()).unwrap_or_else(|_| store.iter()),
            _ => store.iter(),
        }
    }

    fn prefix(&self) -> &[u8] {
        self.glob.as_ref().map_or(&[], Glob::literal_prefix)
    }

    fn matches(&self, text: &[u8], steps: &mut Steps) -> bool {
        if self.slot.is_some_and(|slot| slot != slot_of(text.into())) {
            return false;
        }
        self.glob.as_ref().is_none_or(|glob| matches(glob, text, steps))
    }
}

/// Checks a pattern, and adds the steps of this work to `steps`.
pub(super) fn compile(pattern: &[u8], steps: &mut Steps) -> Result<Glob, String> {
    if pattern.len() > PATTERN_LEN_MAX_BYTES {
        return Err(format!("ERR the pattern is too long, the limit is {PATTERN_LEN_MAX_BYTES} bytes"));
    }
    steps.add(1 + pattern.len() / STEP_GLOB_OPS);
    Glob::new(pattern).ok_or_else(|| {
        format!("ERR a part of the pattern after a star is too long, the limit is {PART_LEN_MAX_BYTES} bytes")
    })
}

/// Returns whether a text matches, and adds the steps of this work to `steps`.
pub(super) fn matches(glob: &Glob, text: &[u8], steps: &mut Steps) -> bool {
    let mut ops = 0;
    let matches = glob.matches_in(text, &mut ops);
    steps.add(ops / STEP_GLOB_OPS);
    matches
}

fn skip_to(rows: &mut Rows<'_>, row: usize) {
    rows.skip_first(row.saturating_sub(rows.ends().0.row));
}

/// Adds to `steps` the cost of visiting a row, with `visit_steps` for its key. Returns whether the pass should end.
fn count_visited(visit_steps: usize, text: &[u8], steps: &mut Steps) -> bool {
    steps.add(visit_steps);
    steps.add_bytes(text.len());
    steps.is_pass_over()
}

fn random_row(store: &Store, random: u64) -> usize {
    (random % store.len().max(1) as u64) as usize
}

/// Returns whether a command of this module must wait until the first rows that it visits are read from the disk.
/// `next_random` is the random number that a RANDOMKEY will use.
#[cold]
pub(super) fn must_wait(store: &Store, command: &Command<'_>, next_random: u64, responses: &mut Responses) -> bool {
    let mut args = command.args();
    args.next();
    match resolve(command).map(|spec| spec.id) {
        Ok(Id::RandomKey) => {
            let row = ColdLookup::Rows { first: random_row(store, next_random), count: 1 };
            must_wait_for(store, &[row], responses)
        }
        Ok(id @ (Id::Scan | Id::Keys)) => must_wait_for_keys(store, id, args, responses),
        _ => false,
    }
}

/// Returns whether a SCAN or KEYS must wait until the first rows that it visits are read from the disk.
fn must_wait_for_keys(store: &Store, id: Id, mut args: Args<'_>, responses: &mut Responses) -> bool {
    let (pattern, rows) = match id {
        Id::Scan => match Scan::parse(store, args, responses.steps()) {
            Ok(Scan { row, count, pattern, .. }) => (Ok(pattern), Some((row, store.rows_at_once(row, count)))),
            Err(problem) => (Err(problem), None),
        },
        _ => (Pattern::new(args.next(), responses.steps()), None),
    };
    // The command replies with an error.
    let Ok(pattern) = pattern else { return false };
    let mut end = None;
    let prefix = pattern.lookup(store, &mut end);
    let lookups = match (prefix, rows) {
        // The first row of the range is not known yet.
        (Some(prefix), Some((0, count))) => {
            let limits = PageLimits { rows_max: count, len_max_bytes: SCAN_LEN_MAX_BYTES };
            vec![ColdLookup::Range(RangeLookup { prefetched: Prefetched::First, ..prefix }, limits)]
        }
        (prefix, rows) => {
            let none = PageLimits { rows_max: 0, len_max_bytes: 0 };
            let prefix = prefix.map(|prefix| ColdLookup::Range(prefix, none));
            prefix.into_iter().chain(rows.map(|(first, count)| ColdLookup::Rows { first, count })).collect()
        }
    };
    must_wait_for(store, &lookups, responses)
}

pub(super) fn random_key(store: &Store, random: u64, out: &mut Out<'_>) -> Replied {
    if store.is_empty() {
        out.null();
        return Ok(());
    }
    out.sink().steps().add(LONE_ROW_STEPS);
    let row = store.row(random_row(store, random));
    let (key, _) = row.ok().flatten().ok_or_else(damaged)?;
    out.bulk(KeyTexts::new(store.key_type()).text(key));
    Ok(())
}

struct Scan {
    row: usize,
    count: usize,
    pattern: Pattern,
    /// Whether the client requested keys of a type that no key has, so that the reply has no keys.
    none: bool,
}

impl Scan {
    fn parse(store: &Store, mut args: Args<'_>, steps: &mut Steps) -> Result<Self, String> {
        let cursor = args.next().and_then(number).ok_or("ERR invalid cursor")?;
        let ScanOptions { count, pattern, kind, .. } = ScanOptions::parse(args, false)?;
        let none = kind.is_some_and(|kind| !kind.eq_ignore_ascii_case(type_name(store).as_bytes()));
        let pattern = Pattern::new(pattern, steps)?;
        Ok(Scan { row: CursorOwner::table(store).position(cursor, store.len())?, count, pattern, none })
    }
}

/// The options of a SCAN or an HSCAN.
pub(super) struct ScanOptions<'a> {
    pub(super) count: usize,
    pub(super) pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    pub(super) names_only: bool,
}

impl<'a> ScanOptions<'a> {
    pub(super) fn parse(mut args: Args<'a>, is_hash: bool) -> Result<ScanOptions<'a>, String> {
        let mut options = ScanOptions { count: SCAN_COUNT_DEFAULT, pattern: None, kind: None, names_only: false };
        while let Some(option) = args.next() {
            if is_hash && option.eq_ignore_ascii_case(b"NOVALUES") {
                options.names_only = true;
                continue;
            }
            let value = args.next().ok_or(SYNTAX)?;
            if option.eq_ignore_ascii_case(b"COUNT") {
                let number = integer(value).ok_or(NOT_AN_INTEGER)?;
                options.count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            } else if option.eq_ignore_ascii_case(b"MATCH") {
                options.pattern = Some(value);
            } else if !is_hash && option.eq_ignore_ascii_case(b"TYPE") {
                options.kind = Some(value);
            } else {
                return Err(SYNTAX.to_owned());
            }
        }
        Ok(options)
    }
}

/// Returns the Redis type of all values of a table.
pub(super) fn type_name(store: &Store) -> &'static str {
    if store.schema_ref().is_some() { "hash" } else { "string" }
}

/// What a cursor belongs to. A cursor contains some bits of this number, so that other cursors are rejected.
#[derive(Clone, Copy, Debug)]
pub(super) struct CursorOwner(u64);

impl CursorOwner {
    /// Returns the owner of cursors that number the rows of a table. The cursor depends on every row.
    fn table(store: &Store) -> CursorOwner {
        CursorOwner(store.digest() as u64)
    }

    /// Returns the owner of cursors that number the columns of a schema. The cursor depends on no row, because its
    /// client may use only some of the rows.
    pub(super) fn schema(schema: &Schema) -> CursorOwner {
        CursorOwner(schema.id())
    }

    fn tag(self) -> u64 {
        self.0 & ((1 << CURSOR_TAG_BITS) - 1)
    }

    /// Returns the cursor that continues a scan at a position: the number of a row, or of a column.
    pub(super) fn cursor(self, position: usize) -> u64 {
        self.tag() << CURSOR_ROW_BITS | position as u64
    }

    /// Returns the position at which a scan continues. The position is less than `end`.
    pub(super) fn position(self, cursor: u64, end: usize) -> Result<usize, String> {
        let position = (cursor & ((1 << CURSOR_ROW_BITS) - 1)) as usize;
        match cursor {
            0 => Ok(0),
            _ if cursor >> CURSOR_ROW_BITS == self.tag() && position < end => Ok(position),
            _ => Err(format!("ERR cursor {cursor} belongs to another generation of the table: begin again with 0")),
        }
    }
}

pub(super) fn scan(store: &Store, args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let scan = Scan::parse(store, args, out.sink().steps())?;
    out.sink().steps().add(LONE_ROW_STEPS);
    let mut rows = scan.pattern.rows(store);
    skip_to(&mut rows, scan.row);
    let (mut keys, mut key_count, mut texts) = (Vec::new(), 0, KeyTexts::new(store.key_type()));
    let visit_steps = key_steps(store.key_type());
    let mut found = Reply::new(&mut keys, out.version());
    let end_row = if scan.none { rows.ends().0.row } else { rows.ends().1.row };
    // The rows of a cold table are read from the disk before the command begins, at most this many.
    let is_cold = store.may_be_cold();
    let count = if is_cold { store.rows_at_once(rows.ends().0.row, scan.count).max(1) } else { scan.count };
    for _ in 0..count {
        if rows.ends().0.row >= end_row || found.sink().len() > SCAN_LEN_MAX_BYTES {
            break;
        }
        let Some(Ok((key, _))) = rows.next() else { return Err(damaged()) };
        let text = texts.text(key);
        if scan.pattern.matches(text, out.sink().steps()) {
            found.bulk(text);
            key_count += 1;
        }
        if count_visited(visit_steps, text, out.sink().steps()) {
            break;
        }
    }
    let next_row = rows.ends().0.row;
    let cursor = if next_row >= end_row { 0 } else { CursorOwner::table(store).cursor(next_row) };
    out.array(2);
    out.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    out.array(key_count);
    out.sink().push(&keys);
    Ok(())
}

pub(super) fn keys(store: &Store, mut args: Args<'_>, out: &mut Out<'_>) -> Result<Outcome, String> {
    let pattern = Pattern::new(args.next(), out.sink().steps())?;
    let row = pattern.rows(store).ends().0.row;
    Ok(Outcome::Work(Work::Keys(Keys { row, loaded_row: row, matches: 0, counting: true, slot: None })))
}

pub(super) fn begin_slot(task: SlotTask) -> Outcome {
    Outcome::Work(Work::SlotCounts(SlotCounting { task, row: 0, loaded_row: 0, counts: Arc::default() }))
}

/// Continues a CLUSTER command about the keys of a slot. Counts the keys of all slots first, if nobody has done so
/// since the generation is served.
pub(super) fn more_of_slot(work: &mut Work, generation: &Generation, out: &mut Out<'_>) -> Result<WorkStep, String> {
    let Work::SlotCounts(counting) = work else { return Ok(WorkStep::Done) };
    let store = &generation.store;
    // The pass that visited the last row is committed now, so no row was counted that had changed.
    let is_counted = counting.row == store.len() && !counting.counts.is_empty();
    if is_counted {
        let _ = generation.slot_counts.set(Arc::clone(&counting.counts));
    }
    let Some(counts) = generation.slot_counts.get() else { return counting.more(store, out.sink()) };
    let SlotTask { slot, keys_max } = counting.task;
    let count = counts[usize::from(slot)] as usize;
    let Some(keys_max) = keys_max else {
        out.integer(count as i64);
        return Ok(WorkStep::Done);
    };
    let matches = count.min(keys_max);
    out.array(matches);
    *work = Work::Keys(Keys { row: 0, loaded_row: 0, matches, counting: false, slot: Some(slot) });
    Ok(WorkStep::Next)
}

impl SlotCounting {
    /// Visits the next rows.
    fn more(&mut self, store: &Store, responses: &mut Responses) -> Result<WorkStep, String> {
        let mut rows = store.iter();
        skip_to(&mut rows, self.row);
        let mut texts = KeyTexts::new(store.key_type());
        let visit_steps = key_steps(store.key_type());
        let counts = Arc::make_mut(&mut self.counts);
        counts.resize(usize::from(SLOT_COUNT), 0);
        responses.steps().add_bytes(size_of_val(&counts[..]));
        while !rows.is_empty() {
            let row = rows.ends().0.row;
            self.row = row;
            if must_wait_for_rows(store, row, &mut self.loaded_row, rows.ends().1.row, responses) {
                return Ok(WorkStep::Load);
            }
            let Some(Ok((key, _))) = rows.next() else { return Err(damaged()) };
            let text = texts.text(key);
            counts[usize::from(slot_of(text.into()))] += 1;
            self.row = rows.ends().0.row;
            if count_visited(visit_steps, text, responses.steps()) {
                break;
            }
        }
        Ok(WorkStep::Yield)
    }
}

/// Returns whether a command must wait until the next rows are read from the disk, up to `end_row`. The rows before
/// `loaded_row` were read before.
fn must_wait_for_rows(
    store: &Store,
    row: usize,
    loaded_row: &mut usize,
    end_row: usize,
    responses: &mut Responses,
) -> bool {
    if !store.may_be_cold() || row < *loaded_row {
        return false;
    }
    let count = store.rows_at_once(row, end_row.saturating_sub(row));
    if must_wait_for(store, &[ColdLookup::Rows { first: row, count }], responses) {
        return true;
    }
    *loaded_row = row + count;
    false
}

impl Keys {
    pub(super) fn more(&mut self, store: &Store, command: &Command<'_>, out: &mut Out<'_>) -> WorkStep {
        let pattern = match Pattern::of(self, command, out.sink().steps()) {
            Ok(pattern) => pattern,
            Err(problem) => {
                out.error(problem);
                return WorkStep::Done;
            }
        };
        if self.counting {
            match self.count(store, &pattern, out.sink()) {
                Ok(None) => out.array(self.matches),
                Ok(Some(step)) => return step,
                Err(problem) => {
                    out.error(problem);
                    return WorkStep::Done;
                }
            }
        }
        self.send(store, &pattern, out)
    }

    /// Returns whether the command must wait until the next rows are read from the disk.
    fn must_wait(&mut self, store: &Store, end_row: usize, responses: &mut Responses) -> bool {
        must_wait_for_rows(store, self.row, &mut self.loaded_row, end_row, responses)
    }

    /// Continues to count the matching keys. Returns `None` if all of them are counted.
    fn count(
        &mut self,
        store: &Store,
        pattern: &Pattern,
        responses: &mut Responses,
    ) -> Result<Option<WorkStep>, String> {
        let mut rows = pattern.rows(store);
        let first_row = rows.ends().0.row;
        if pattern.is_any() {
            self.matches = rows.len();
        } else {
            skip_to(&mut rows, self.row);
            let mut texts = KeyTexts::new(store.key_type());
            let visit_steps = key_steps(store.key_type());
            while !rows.is_empty() {
                self.row = rows.ends().0.row;
                if self.must_wait(store, rows.ends().1.row, responses) {
                    return Ok(Some(WorkStep::Load));
                }
                let Some(Ok((key, _))) = rows.next() else { return Err(damaged()) };
                let text = texts.text(key);
                self.matches += usize::from(pattern.matches(text, responses.steps()));
                if count_visited(visit_steps, text, responses.steps()) {
                    self.row = rows.ends().0.row;
                    return Ok(Some(WorkStep::Yield));
                }
            }
        }
        (self.row, self.loaded_row, self.counting) = (first_row, first_row, false);
        Ok(None)
    }

    fn send(&mut self, store: &Store, pattern: &Pattern, out: &mut Out<'_>) -> WorkStep {
        let mut rows = pattern.rows(store);
        skip_to(&mut rows, self.row);
        let mut texts = KeyTexts::new(store.key_type());
        let visit_steps = key_steps(store.key_type());
        while self.matches > 0 {
            self.row = rows.ends().0.row;
            if out.sink().is_full() {
                return WorkStep::Full;
            }
            if self.must_wait(store, rows.ends().1.row, out.sink()) {
                return WorkStep::Load;
            }
            let Some(Ok((key, _))) = rows.next() else {
                // The file was changed since the keys were counted. An error replaces each missing key, because the
                // array's header announced the number of keys.
                out.error(damaged());
                self.matches -= 1;
                continue;
            };
            let text = texts.text(key);
            if pattern.matches(text, out.sink().steps()) {
                out.bulk(text);
                self.matches -= 1;
            }
            if count_visited(visit_steps, text, out.sink().steps()) {
                self.row = rows.ends().0.row;
                return WorkStep::Yield;
            }
        }
        WorkStep::Done
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::bake::{Options, bake_csv};

    fn table(csv: &str) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake_csv(csv.as_bytes(), &db, &Options::default()).unwrap();
        let store = Store::open(db).unwrap();
        (folder, store)
    }

    #[test]
    fn a_cursor_of_another_generation_is_rejected() {
        let (_folder, one) = table("1,a\n2,b\n3,c\n");
        let (_folder, other) = table("1,a\n2,b\n3,d\n");
        let [one, other] = [&one, &other].map(CursorOwner::table);
        for row in 1..3 {
            let cursor = one.cursor(row);
            assert_eq!(cursor as f64 as u64, cursor);
            assert_eq!(one.position(cursor, 3), Ok(row));
            assert!(other.position(cursor, 3).unwrap_err().contains("begin again with 0"));
        }
        assert!(one.position(one.cursor(3), 3).is_err());
        assert_eq!(one.position(0, 3), Ok(0));
    }

    #[test]
    fn every_cursor_is_an_exact_floating_point_number() {
        for tag in [0, 1, 0x5555_5555_5555_5555, u64::MAX] {
            for position in [1, 2, (1 << 31) + 1, u32::MAX as usize] {
                let owner = CursorOwner(tag);
                let cursor = owner.cursor(position);
                assert!(cursor < 1 << 53 && cursor as f64 as u64 == cursor, "{cursor}");
                assert_eq!(owner.position(cursor, usize::MAX), Ok(position));
            }
        }
    }
}
