//! Merges sorted sources into one sequence without duplicate keys.
//!
//! The merge uses a tree of losers (Knuth, The Art of Computer Programming 3, 5.4.1), a tournament between the next
//! rows of all sources. Each inner node stores the source that lost its match. After the winner's row is taken, only
//! the matches between the winner's leaf and the root are repeated.

use super::sorted_rows::{BASE_RANK, SortedRows};
use super::{Duplicate, HeldRow, Tally};
use crate::bake::error::BakeError;
use crate::format::key::Key;

/// A tournament between the sources of a merge, stored as a loser tree. The source with the least next key wins.
struct Tournament {
    /// The source that lost the match at each inner node of the tree. Nodes are counted from 1.
    losers: Vec<u32>,
    winner: u32,
    /// The source whose row was taken last.
    last_winner: u32,
    /// The head of each source's next key (see [`Key::head`]), or `None` at the source's end.
    heads: Vec<Option<u64>>,
}

const NO_SOURCE: u32 = u32::MAX;

impl Tournament {
    fn new(sources: &[SortedRows<'_>], heads: Vec<Option<u64>>) -> Tournament {
        let mut tournament =
            Tournament { losers: vec![NO_SOURCE; sources.len()], winner: NO_SOURCE, last_winner: NO_SOURCE, heads };
        for source in 0..sources.len() {
            tournament.play(sources, source as u32);
        }
        tournament
    }

    /// Plays the matches of a source, from its leaf up to the root of the tree. While the tree is built, the source
    /// that has won so far is stored in the first node that has no loser yet, and waits there for its opponent.
    fn play(&mut self, sources: &[SortedRows<'_>], source: u32) {
        let mut winner = source;
        let mut node = (source as usize + sources.len()) / 2;
        while node > 0 {
            let loser = self.losers[node];
            if loser == NO_SOURCE {
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

    /// Returns the source of the next row, or `None` at the end of all sources.
    #[inline]
    fn winner<'s, 'r>(&self, sources: &'s mut [SortedRows<'r>]) -> Option<(u32, &'s mut SortedRows<'r>)> {
        let source = sources.get_mut(self.winner as usize)?;
        self.heads[self.winner as usize].map(|_| (self.winner, source))
    }

    /// Returns the least head (see [`Key::head`]) of all sources except the winner. The source with this head lost its
    /// match against the winner, so this source is stored in a node between the winner's leaf and the root.
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
    fn precedes(&self, sources: &[SortedRows<'_>], a: u32, b: u32) -> bool {
        let (a, b) = (a as usize, b as usize);
        // Most heads differ, so most matches read no row.
        match (self.heads[a], self.heads[b]) {
            (Some(head_a), Some(head_b)) if head_a != head_b => head_a < head_b,
            (Some(_), Some(_)) => (sources[a].key(), sources[a].rank) < (sources[b].key(), sources[b].rank),
            (head_a, _) => head_a.is_some(),
        }
    }
}

/// The key, origin, and deletion flag of the last row that was kept.
#[derive(Default)]
struct LastKept {
    some: bool,
    number: u64,
    bytes: Vec<u8>,
    origin: u64,
    deleted: bool,
}

impl LastKept {
    fn has(&self, key: Key<'_>) -> bool {
        self.some
            && match key {
                Key::U64(number) => self.number == number,
                Key::Bytes(bytes) => self.bytes == bytes,
            }
    }

    fn keep(&mut self, row: &HeldRow<'_>, origin: u64) {
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

/// What happens to a row of the base with the key of another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bake) enum ReplacedRow {
    /// The row is dropped and counted.
    Dropped,
    /// The row is passed on after the other row.
    Passed,
}

/// Passes the rows of all sources to `take` in key order. If several sources have a row with the same key, only the row
/// of the source with the lowest rank is passed, and `tally` counts the other rows; `replaced` is the exception. Within a
/// source, keys must be unique. The first `common_len_bytes` bytes of all keys must be equal.
pub(in crate::bake) fn merge(
    sources: &mut [SortedRows<'_>],
    common_len_bytes: usize,
    replaced: ReplacedRow,
    tally: &mut Tally,
    mut take: impl FnMut(&HeldRow<'_>, u64) -> Result<(), BakeError>,
) -> Result<(), BakeError> {
    let heads = sources.iter_mut().map(|source| source.begin(common_len_bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut tournament = Tournament::new(sources, heads);
    let mut kept = LastKept::default();
    while let Some((winner, source)) = tournament.winner(sources) {
        let (row, origin) = source.row();
        if !kept.has(row.key) {
            kept.keep(&row, origin);
            take(&row, origin)?;
        } else if source.rank != BASE_RANK {
            tally.duplicates_dropped += 1;
            tally.note(|| Duplicate::new(row.key, kept.origin, origin), kept.origin.max(origin));
        } else if replaced == ReplacedRow::Passed {
            take(&row, origin)?;
        } else if kept.deleted {
            tally.base_removed += 1;
        } else {
            tally.base_replaced += 1;
        }
        let mut head = source.advance(common_len_bytes)?;
        // A large base has many rows between two new rows. A row whose head is less than the heads of all other sources
        // wins every match, so such rows are taken without a tournament.
        if tournament.last_winner == winner {
            let others = tournament.least_of_others(winner);
            while let Some(own) = head
                && others.is_none_or(|others| own < others)
            {
                let (row, origin) = source.row();
                take(&row, origin)?;
                head = source.advance(common_len_bytes)?;
            }
        }
        tournament.last_winner = winner;
        tournament.heads[winner as usize] = head;
        tournament.play(sources, winner);
    }
    Ok(())
}
