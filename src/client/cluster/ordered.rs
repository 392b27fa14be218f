//! Ordered lookups in a cluster.
//!
//! In: keys and ranges. Out: the nearest rows, numbers of keys, and rows in key order, of the whole table. Every slot is
//! asked from one node, all nodes at the same time, and the results are combined. Ordered requests name no slot, so a node
//! answers them for all rows of its file. Each batch of them is therefore sent between two requests for the slots that the
//! file has, in one round trip: too few slots are an error, and rows that another node answers for are not counted twice.

use std::ops::Bound;
use std::vec;

use super::ClusterClient;
use crate::client::batch::{self, Guards};
use crate::client::blocking::Client;
use crate::client::columns::{BATCH_LEN_MAX, TABLE_CHANGES_MAX};
use crate::client::error::ClientError;
use crate::client::info::Info;
use crate::client::key::{KeyRange, OwnedKey};
use crate::client::request::{
    Ceiling, Count, FirstRow, Floor, GetInfo, GetPage, KeyRequest, LastRow, Row, TypedRequest, check_bounds,
    prefix_range,
};
use crate::cluster::SlotSet;
use crate::format::KeyBounds;
use crate::format::key::{Key, KeyKind};
use crate::protocol::native::Op;
use crate::slots::{SLOT_COUNT, SlotRange, slot_of};

/// The next rows of a range of the whole table, in key order.
#[derive(Clone, Debug)]
pub struct ClusterPage {
    /// The rows, of which there is at least one if `rest` is a range.
    pub rows: Vec<Row>,
    /// The range of the rows after these. `None` if there are none.
    pub rest: Option<KeyRange>,
}

/// Ordered lookups in the whole table. Each of them asks one node for each slot, so it takes as long as the slowest of
/// these nodes. If the nodes serve different generations at the moment of a call, the result combines them.
impl ClusterClient {
    /// Returns the row with the largest key less than or equal to `key`.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn floor<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        Ok(self.floor_many(&[key.into()])?.pop().flatten())
    }

    /// Returns the result of [`ClusterClient::floor`] for each of many keys, in the order of the keys.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn floor_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<Option<Row>>, ClientError> {
        self.nearest_many::<_, Floor<'k>>(keys, |row, than| row.0 > than.0)
    }

    /// Returns the row with the smallest key greater than or equal to `key`.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn ceiling<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        Ok(self.ceiling_many(&[key.into()])?.pop().flatten())
    }

    /// Returns the result of [`ClusterClient::ceiling`] for each of many keys, in the order of the keys.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<Option<Row>>, ClientError> {
        self.nearest_many::<_, Ceiling<'k>>(keys, |row, than| row.0 < than.0)
    }

    /// Returns the row with the smallest key of the whole table.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn first(&mut self) -> Result<Option<Row>, ClientError> {
        Ok(self.nearest(1, |_| FirstRow, |row, than| row.0 < than.0)?.pop().flatten())
    }

    /// Returns the row with the largest key of the whole table.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn last(&mut self) -> Result<Option<Row>, ClientError> {
        Ok(self.nearest(1, |_| LastRow, |row, than| row.0 > than.0)?.pop().flatten())
    }

    fn nearest_many<'k, K, R>(
        &mut self,
        keys: &[K],
        is_nearer: impl Fn(&Row, &Row) -> bool,
    ) -> Result<Vec<Option<Row>>, ClientError>
    where
        K: Into<Key<'k>> + Copy,
        R: KeyRequest<'k> + TypedRequest<Output = Option<Row>>,
    {
        batch::check_keys(keys)?;
        let keys: Vec<Key<'k>> = keys.iter().map(|key| (*key).into()).collect();
        self.nearest(keys.len(), |at| R::from_checked(keys[at]), is_nearer)
    }

    /// Sends `len` requests to the nodes, and returns the nearest of the rows that the nodes return for each of them.
    fn nearest<R: TypedRequest<Output = Option<Row>>>(
        &mut self,
        len: usize,
        request: impl Fn(usize) -> R + Sync,
        is_nearer: impl Fn(&Row, &Row) -> bool,
    ) -> Result<Vec<Option<Row>>, ClientError> {
        let mut nearest: Vec<Option<Row>> = vec![None; len];
        if len == 0 {
            return Ok(nearest);
        }
        self.ask_all(
            |client, slots| Ok(ask(client, slots, len, &request)?.0),
            |found| {
                for (nearest, row) in nearest.iter_mut().zip(found) {
                    if let Some(row) = row
                        && nearest.as_ref().is_none_or(|nearest| is_nearer(&row, nearest))
                    {
                        *nearest = Some(row);
                    }
                }
            },
        )?;
        Ok(nearest)
    }

    /// Returns the kind of the table's keys: see [`Client::key_kind`].
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn key_kind(&mut self) -> Result<KeyKind, ClientError> {
        let mut kind = None;
        self.answer_all(vec![(0, ())], |client, _| client.key_kind(), |_, found| kind = Some(found))?;
        Ok(kind.expect("a call without an error has an answer"))
    }

    /// Returns the number of keys in a range.
    ///
    /// A node whose file has rows that other nodes answer for, as after a move of slots, sends its keys, and the client
    /// counts those of the node's slots. Other nodes send no rows.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`], and [`ClientError::MixedKeys`] if the ends of the range are of different kinds.
    pub fn count<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<u64, ClientError> {
        let range = KeyRange::from(check_bounds(&range)?);
        let mut keys = 0;
        self.ask_all(|client, slots| count_in(client, slots, &range), |found| keys += found)?;
        Ok(keys)
    }

    /// Returns the number of keys that start with `prefix`, as [`ClusterClient::count`] does.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::count`].
    pub fn count_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        let range = prefix_range(prefix.as_ref())?;
        self.count(range.bounds())
    }

    /// Iterates over the rows whose keys are in a range, in key order. No request is sent before the first row is taken.
    ///
    /// # Errors
    /// [`ClientError::MixedKeys`] if the ends of the range are of different kinds.
    pub fn range<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<ClusterRows<'_>, ClientError> {
        let rest = Some(KeyRange::from(check_bounds(&range)?));
        Ok(ClusterRows { client: self, rest, page: Vec::new().into_iter() })
    }

    /// Iterates over the rows whose keys start with `prefix`, as [`ClusterClient::range`] does.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`].
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<ClusterRows<'_>, ClientError> {
        let rest = Some(prefix_range(prefix.as_ref())?);
        Ok(ClusterRows { client: self, rest, page: Vec::new().into_iter() })
    }

    /// Returns the first rows of a range: as many as all nodes together know to be next. [`ClusterPage::rest`] is the range
    /// to request next.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::range`] and of [`ClusterClient::get`].
    pub fn first_page<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<ClusterPage, ClientError> {
        self.page(GetPage::first(range, 0)?)
    }

    /// Returns the last rows of a range, like [`ClusterClient::first_page`]. The rows are in ascending key order.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::first_page`].
    pub fn last_page<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<ClusterPage, ClientError> {
        self.page(GetPage::last(range, 0)?)
    }

    fn page(&mut self, request: GetPage<'_>) -> Result<ClusterPage, ClientError> {
        let is_backward = request.backward;
        let is_before = |a: &OwnedKey, b: &OwnedKey| if is_backward { a > b } else { a < b };
        let mut rows: Vec<Row> = Vec::new();
        // The rows beyond the end of a page that is not the node's last one are not known yet. This is the nearest end.
        let mut known_to: Option<OwnedKey> = None;
        self.ask_all(
            |client, slots| Ok(ask(client, slots, 1, |_| request)?.0),
            |pages| {
                for page in pages {
                    let mut ends = page.iter();
                    let end = if is_backward { ends.next() } else { ends.next_back() };
                    let end = end.filter(|_| page.rest().is_some()).map(|(key, _)| OwnedKey::from(key));
                    known_to = match (known_to.take(), end) {
                        (Some(known), Some(end)) => Some(if is_before(&end, &known) { end } else { known }),
                        (known, end) => known.or(end),
                    };
                    rows.extend(page.iter().map(|(key, value)| (OwnedKey::from(key), value.to_vec())));
                }
            },
        )?;
        rows.retain(|(key, _)| known_to.as_ref().is_none_or(|end| !is_before(end, key)));
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        // A row that two nodes have is the same row.
        rows.dedup_by(|a, b| a.0 == b.0);
        let KeyRange { start, end } = KeyRange::from(request.bounds);
        let rest = known_to.map(|known_to| match is_backward {
            true => KeyRange::new(start, Bound::Excluded(known_to)),
            false => KeyRange::new(Bound::Excluded(known_to), end),
        });
        Ok(ClusterPage { rows, rest })
    }

    /// Makes a call to one node for each slot, and passes each result to `answered`.
    fn ask_all<T: Send>(
        &mut self,
        call: impl Fn(&mut Client, &SlotSet) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(T),
    ) -> Result<(), ClientError> {
        let of_slots = |client: &mut Client, items: &[(u16, ())]| {
            let mut slots = SlotSet::NONE;
            items.iter().for_each(|(slot, ())| slots.insert(*slot));
            call(client, &slots)
        };
        let all_slots = (0..SLOT_COUNT).map(|slot| (slot, ())).collect();
        self.answer_all(all_slots, of_slots, |_, result| answered(result))
    }
}

/// Sends `len` requests to a node that answers for some slots, in batches that are each answered from one file. Returns the
/// results, and the slots of the last file. All files have the rows of the node's slots.
fn ask<R: TypedRequest>(
    client: &mut Client,
    slots: &SlotSet,
    len: usize,
    request: impl Fn(usize) -> R,
) -> Result<(Vec<R::Output>, SlotSet), ClientError> {
    let (mut results, mut of_file) = (Vec::with_capacity(len), SlotSet::NONE);
    while results.len() < len {
        let batch_len = (len - results.len()).min(BATCH_LEN_MAX);
        of_file = ask_one_file(client, batch_len, &request, &mut results)?;
        if !slots.is_subset(&of_file) {
            let request = "rows in key order, of which the node has only some".to_owned();
            return Err(ClientError::Moved { server: client.target.address.clone(), request });
        }
    }
    Ok((results, of_file))
}

/// Sends the next `len` requests after those that have results, between two requests for Info. Repeats all of them if the
/// node has replaced its file in between. Returns the slots of the file.
fn ask_one_file<R: TypedRequest>(
    client: &mut Client,
    len: usize,
    request: &impl Fn(usize) -> R,
    results: &mut Vec<R::Output>,
) -> Result<SlotSet, ClientError> {
    let start = results.len();
    for _ in 0..=TABLE_CHANGES_MAX {
        let mut files = Vec::with_capacity(2);
        client.exchange(batch::between(
            Guards { before: &[Op::Info], after: Op::Info },
            request(start).op(),
            len,
            |at| request(start + at),
            |at, response| {
                results.truncate(start + at);
                results.push(request(start + at).decode(response)?);
                Ok(())
            },
            |at, response| {
                files.truncate(at);
                files.push(ServedFile::of(&GetInfo.decode(response)?));
                Ok(())
            },
        ))?;
        if let Ok([before, after]) = <[ServedFile; 2]>::try_from(files)
            && before == after
        {
            return Ok(after.slots);
        }
    }
    Err(ClientError::TableUnstable { server: client.target.address.clone(), changes: TABLE_CHANGES_MAX + 1 })
}

/// The file that a node serves.
#[derive(Debug, PartialEq)]
struct ServedFile {
    generation: Option<String>,
    /// The slots whose rows the file has.
    slots: SlotSet,
}

impl ServedFile {
    fn of(info: &Info) -> ServedFile {
        let ranges = info.get("cluster_file_slots").unwrap_or("none");
        ServedFile {
            generation: info.get("generation").map(str::to_owned),
            slots: ranges.split(',').filter_map(|range| range.parse::<SlotRange>().ok()).collect(),
        }
    }
}

/// Returns the number of keys of a range that have some slots.
fn count_in(client: &mut Client, slots: &SlotSet, range: &KeyRange) -> Result<u64, ClientError> {
    let count = Count::new(range.bounds())?;
    let (counts, of_file) = ask(client, slots, 1, |_| count)?;
    // Without other slots in the file, its rows are those to count.
    if of_file.is_subset(slots) {
        return Ok(counts.into_iter().sum());
    }
    let (mut keys, mut rest) = (0, Some(range.clone()));
    while let Some(range) = rest.take() {
        let request = GetPage::first(range.bounds(), 0)?;
        for page in ask(client, slots, 1, |_| request)?.0 {
            keys += page.iter().filter(|(key, _)| slots.has(slot_of(*key))).count() as u64;
            rest = page.rest().cloned();
        }
    }
    Ok(keys)
}

/// The rows of a range of the whole table, in key order: see [`ClusterClient::range`].
#[derive(Debug)]
pub struct ClusterRows<'c> {
    client: &'c mut ClusterClient,
    /// The range of the rows after those of `page`. `None` if there are none.
    rest: Option<KeyRange>,
    page: vec::IntoIter<Row>,
}

impl Iterator for ClusterRows<'_> {
    type Item = Result<Row, ClientError>;

    /// Returns the next row. After an error, the next call requests the same rows again.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.page.next() {
                return Some(Ok(row));
            }
            match self.client.first_page(self.rest.as_ref()?.bounds()) {
                Ok(ClusterPage { rows, rest }) => (self.page, self.rest) = (rows.into_iter(), rest),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
