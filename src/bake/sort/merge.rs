//! One ascending stream of many, without a key twice.
//!
//! A tournament of losers (Knuth, The Art of Computer Programming 3, 5.4.1): the
//! next row of each source plays against one other on each level, and after a
//! row is taken only its source plays again.

use super::held::Held;
use super::source::Source;
use crate::bake::BakeError;
use crate::bake::error::named;
use crate::format::key::Key;

/// What was dropped on the way.
#[derive(Debug, Default)]
pub(in crate::bake) struct Tally {
    /// Rows that another row of the input with the same key displaced.
    pub(in crate::bake) duplicates_dropped: u64,
    /// Rows of a base whose key the input has with another value.
    pub(in crate::bake) base_replaced: u64,
    /// Rows of a base whose key the input removes.
    pub(in crate::bake) base_removed: u64,
    /// Of all duplicates, the one whose later row comes first.
    pub(in crate::bake) duplicate: Option<Duplicate>,
}

/// Two rows with the same key.
#[derive(Debug)]
pub(in crate::bake) struct Duplicate {
    pub(in crate::bake) key: String,
    pub(in crate::bake) first_origin: u64,
    pub(in crate::bake) later_origin: u64,
}

impl Duplicate {
    pub(in crate::bake) fn new(key: Key<'_>, one: u64, other: u64) -> Duplicate {
        Duplicate { key: named(key), first_origin: one.min(other), later_origin: one.max(other) }
    }
}

impl Tally {
    /// Adds what another part of the bake has tallied.
    pub(in crate::bake) fn add(&mut self, other: Tally) {
        self.duplicates_dropped += other.duplicates_dropped;
        self.base_replaced += other.base_replaced;
        self.base_removed += other.base_removed;
        if let Some(duplicate) = other.duplicate {
            let later_origin = duplicate.later_origin;
            self.note(|| duplicate, later_origin);
        }
    }

    /// Notes a duplicate whose later row is here, if it is the first so far.
    pub(in crate::bake) fn note(&mut self, duplicate: impl FnOnce() -> Duplicate, later_origin: u64) {
        if self.duplicate.as_ref().is_none_or(|noted| later_origin < noted.later_origin) {
            self.duplicate = Some(duplicate());
        }
    }
}

/// Which source is next.
struct Tournament {
    /// On each inner node, from 1, the source that lost there.
    losers: Vec<u32>,
    winner: u32,
    /// The winner before.
    won_last: u32,
    /// What stands for the key of each source's next row. `None` if it has none.
    heads: Vec<Option<u64>>,
}

const NOBODY: u32 = u32::MAX;

impl Tournament {
    fn new(sources: &[Source<'_>], heads: Vec<Option<u64>>) -> Tournament {
        let mut tournament =
            Tournament { losers: vec![NOBODY; sources.len()], winner: NOBODY, won_last: NOBODY, heads };
        for source in 0..sources.len() {
            tournament.play(sources, source as u32);
        }
        tournament
    }

    /// Has a source play from its leaf up. While the tree fills, it waits on the first node where nobody is.
    fn play(&mut self, sources: &[Source<'_>], source: u32) {
        let mut winner = source;
        let mut node = (source as usize + sources.len()) / 2;
        while node > 0 {
            let loser = self.losers[node];
            if loser == NOBODY {
                self.losers[node] = winner;
                return;
            }
            if self.precedes(sources, loser, winner) {
                self.losers[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.winner = winner;
    }

    /// The source that has the next row. `None` if none has.
    #[inline]
    fn winner<'s, 'r>(&self, sources: &'s mut [Source<'r>]) -> Option<(u32, &'s mut Source<'r>)> {
        let source = sources.get_mut(self.winner as usize)?;
        self.heads[self.winner as usize].map(|_| (self.winner, source))
    }

    /// The least head of all sources but the winner: one that lost against it on its way up.
    fn least_of_others(&self, winner: u32) -> Option<u64> {
        let mut node = (winner as usize + self.losers.len()) / 2;
        let mut least = None;
        while node > 0 {
            let head = self.heads[self.losers[node] as usize];
            least = least.into_iter().chain(head).min();
            node /= 2;
        }
        least
    }

    #[inline]
    fn precedes(&self, sources: &[Source<'_>], a: u32, b: u32) -> bool {
        let (a, b) = (a as usize, b as usize);
        match (self.heads[a], self.heads[b]) {
            (Some(head_a), Some(head_b)) if head_a != head_b => head_a < head_b,
            (Some(_), Some(_)) => (sources[a].key(), sources[a].rank) < (sources[b].key(), sources[b].rank),
            (head_a, _) => head_a.is_some(),
        }
    }
}

/// The key of the row that was kept last.
#[derive(Default)]
struct Kept {
    some: bool,
    number: u64,
    bytes: Vec<u8>,
    origin: u64,
    deleted: bool,
}

impl Kept {
    fn has(&self, key: Key<'_>) -> bool {
        self.some
            && match key {
                Key::U64(number) => self.number == number,
                Key::Bytes(bytes) => self.bytes == bytes,
            }
    }

    fn keep(&mut self, row: &Held<'_>, origin: u64) {
        match row.key {
            Key::U64(number) => self.number = number,
            Key::Bytes(bytes) => {
                self.bytes.clear();
                self.bytes.extend_from_slice(bytes);
            }
        }
        (self.some, self.origin, self.deleted) = (true, origin, row.deleted);
    }
}

/// Hands on the rows of all sources in key order. Of rows with the same key, the one of the source with the lowest rank is
/// handed on, and the others are tallied; no source has a key twice. All keys must begin with the same `common_len_bytes`.
pub(in crate::bake) fn merge(
    sources: &mut [Source<'_>],
    common_len_bytes: usize,
    tally: &mut Tally,
    mut take: impl FnMut(&Held<'_>, u64) -> Result<(), BakeError>,
) -> Result<(), BakeError> {
    let heads = sources.iter_mut().map(|source| source.begin(common_len_bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut tournament = Tournament::new(sources, heads);
    let mut kept = Kept::default();
    while let Some((winner, source)) = tournament.winner(sources) {
        let (row, origin) = source.row();
        if !kept.has(row.key) {
            kept.keep(&row, origin);
            take(&row, origin)?;
        } else if !source.is_base {
            tally.duplicates_dropped += 1;
            tally.note(|| Duplicate::new(row.key, kept.origin, origin), kept.origin.max(origin));
        } else if kept.deleted {
            tally.base_removed += 1;
        } else {
            tally.base_replaced += 1;
        }
        let mut head = source.advance(common_len_bytes)?;
        // Where one source has many rows before all others, as a large base has beside few new rows, each is below all
        // that the others have, and none needs to play.
        if tournament.won_last == winner {
            let others = tournament.least_of_others(winner);
            while let Some(own) = head
                && others.is_none_or(|others| own < others)
            {
                let (row, origin) = source.row();
                take(&row, origin)?;
                head = source.advance(common_len_bytes)?;
            }
        }
        tournament.won_last = winner;
        tournament.heads[winner as usize] = head;
        tournament.play(sources, winner);
    }
    Ok(())
}
