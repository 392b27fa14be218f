//! Merges sorted sources into one sequence without duplicate keys.
//!
//! The merge is a tournament of losers (Knuth, The Art of Computer Programming 3, 5.4.1): the next row of each source
//! plays against one other row on each level, and after a row is taken only its source plays again.

use super::held_row::HeldRow;
use super::sorted_rows::SortedRows;
use super::tally::{Duplicate, Tally};
use crate::bake::error::BakeError;
use crate::format::key::Key;

/// Determines the source of the next row.
struct Tournament {
    /// The source that lost at each inner node; nodes are counted from 1.
    losers: Vec<u32>,
    winner: u32,
    /// The winner before the current one.
    won_last: u32,
    /// The head of each source's next key, or `None` at its end.
    heads: Vec<Option<u64>>,
}

const NOBODY: u32 = u32::MAX;

impl Tournament {
    fn new(sources: &[SortedRows<'_>], heads: Vec<Option<u64>>) -> Tournament {
        let mut tournament =
            Tournament { losers: vec![NOBODY; sources.len()], winner: NOBODY, won_last: NOBODY, heads };
        for source in 0..sources.len() {
            tournament.play(sources, source as u32);
        }
        tournament
    }

    /// Plays a source from its leaf upward. While the tree fills, the source stops at the first empty node.
    fn play(&mut self, sources: &[SortedRows<'_>], source: u32) {
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

    /// Returns the source of the next row, or `None` at the end of all sources.
    #[inline]
    fn winner<'s, 'r>(&self, sources: &'s mut [SortedRows<'r>]) -> Option<(u32, &'s mut SortedRows<'r>)> {
        let source = sources.get_mut(self.winner as usize)?;
        self.heads[self.winner as usize].map(|_| (self.winner, source))
    }

    /// Returns the least head of all sources except the winner. The source that has it lost to the winner, so its node
    /// is on the winner's path.
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

/// Passes the rows of all sources to `take` in key order. Of rows with the same key, only the row of the source with
/// the lowest rank is passed; the tally counts the others. No source may have a key twice, and all keys must share a
/// prefix of `common_len_bytes`.
pub(in crate::bake) fn merge(
    sources: &mut [SortedRows<'_>],
    common_len_bytes: usize,
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
        } else if !source.is_base {
            tally.duplicates_dropped += 1;
            tally.note(|| Duplicate::new(row.key, kept.origin, origin), kept.origin.max(origin));
        } else if kept.deleted {
            tally.base_removed += 1;
        } else {
            tally.base_replaced += 1;
        }
        let mut head = source.advance(common_len_bytes)?;
        // A large base has many rows between two new rows. Rows whose heads are less than those of all other sources
        // win every match, so they are taken without a tournament.
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
