//! Ordered lookups in a cluster.
//!
//! In: keys and ranges. Out: the nearest rows, numbers of keys, and rows in key order, of the whole table. One node
//! answers for each slot, all nodes at the same time, and the results are combined. Ordered requests name no slot, so a
//! node answers them for all rows of its file. Each batch of them is therefore sent between two requests for the slots
//! that the file has, in one round trip: too few slots are an error, and rows of other nodes' slots are not counted
//! twice. The batch also requests the schema of the file, because nodes can serve generations with different schemas.

use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use super::ClusterClient;
use crate::client::batch::{self, Guards};
use crate::client::blocking::Client;
use crate::client::columns::{BATCH_LEN_MAX, TABLE_CHANGES_MAX};
use crate::client::error::ClientError;
use crate::client::request::{
    Bounds, Ceiling, Count, Cover, FirstRow, Floor, GetInfo, GetPage, GetSchema, Info, KeyRange, KeyRequest, LastRow,
    OwnedKey, RangeRow, RequestError, Row, TypedRequest, check_bounds, prefix_range,
};
use crate::cluster::SlotSet;
use crate::format::KeyBounds;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::protocol::native::Op;
use crate::protocol::response::Violation;
use crate::slots::{SLOT_COUNT, slot_of_typed};
use crate::typed::Schema;

/// The next rows of a range of the whole table, in key order.
#[derive(Clone, Debug)]
pub struct ClusterPage {
    /// The rows, of which there is at least one if `rest` is a range.
    pub rows: Vec<Row>,
    /// For each row, the schema of the table that it comes from, or `None` if that table has no schema.
    pub schemas: Vec<Option<Arc<Schema>>>,
    /// The range of the rows after these. `None` if there are none.
    pub rest: Option<KeyRange>,
}

/// Rows, or `None` where there is none, and the schema of each row.
type RowsWithSchemas = (Vec<Option<Row>>, Vec<Option<Arc<Schema>>>);

/// Ranges, or `None` where there is none, and the schema of each range.
type RangesWithSchemas = (Vec<Option<RangeRow>>, Vec<Option<Arc<Schema>>>);

/// A request for the row nearest to a key, or for the first or last row. Each node returns the nearest of its rows, and
/// the nearest of these is the result.
pub trait NearestRow: TypedRequest<Output = Option<Row>> + Copy + Sync {
    /// Returns whether a row with `key` is nearer than a row with the key `than`.
    fn is_nearer(key: &OwnedKey, than: &OwnedKey) -> bool;
}

/// Implements [`NearestRow`] for requests for the largest or the smallest of some keys.
macro_rules! impl_nearest_row {
    ($($Request:ty: $is_nearer:expr),*) => {
        $(impl NearestRow for $Request {
            fn is_nearer(key: &OwnedKey, than: &OwnedKey) -> bool {
                $is_nearer(key, than)
            }
        })*
    };
}

impl_nearest_row!(
    Floor<'_>: OwnedKey::gt,
    LastRow: OwnedKey::gt,
    Ceiling<'_>: OwnedKey::lt,
    FirstRow: OwnedKey::lt
);

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
        self.nearest_many::<_, Floor<'k>>(keys)
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
        self.nearest_many::<_, Ceiling<'k>>(keys)
    }

    /// Returns the range that contains `key`, in a table of ranges: its first key, its last key, and its value.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`], and [`ClientError::Server`] if the rows are no ranges.
    pub fn cover<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<RangeRow>, ClientError> {
        Ok(self.cover_many(&[key.into()])?.pop().flatten())
    }

    /// Returns the result of [`ClusterClient::cover`] for each of many keys, in the order of the keys.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::cover`].
    pub fn cover_many<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<RangeRow>>, ClientError> {
        Ok(self.cover_many_with_schema(keys)?.0)
    }

    /// Returns the result of [`ClusterClient::cover_many`], and for each range the schema of the table that it comes from,
    /// as [`ClusterClient::call_with_schema`] does.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::cover`].
    #[doc(hidden)]
    pub fn cover_many_with_schema<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
    ) -> Result<RangesWithSchemas, ClientError> {
        batch::check_keys(keys)?;
        let requests: Vec<Cover<'k>> = keys.iter().map(|key| Cover::from_checked((*key).into())).collect();
        let (mut rows, mut schemas) = (vec![None; requests.len()], vec![None; requests.len()]);
        if requests.is_empty() {
            return Ok((rows, schemas));
        }
        self.ask_all(
            |client, slots| ask(client, slots, &requests),
            |found| {
                for (at, (row, schema)) in found.results.into_iter().zip(found.schemas).enumerate() {
                    // Ranges do not overlap, so all nodes that have a range of the key have the same one.
                    if row.is_some() && rows[at].is_none() {
                        (rows[at], schemas[at]) = (row, schema);
                    }
                }
            },
        )?;
        Ok((rows, schemas))
    }

    /// Returns the row with the smallest key of the whole table.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn first(&mut self) -> Result<Option<Row>, ClientError> {
        Ok(self.call_with_schema(&[FirstRow])?.0.pop().flatten())
    }

    /// Returns the row with the largest key of the whole table.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn last(&mut self) -> Result<Option<Row>, ClientError> {
        Ok(self.call_with_schema(&[LastRow])?.0.pop().flatten())
    }

    fn nearest_many<'k, K, R>(&mut self, keys: &[K]) -> Result<Vec<Option<Row>>, ClientError>
    where
        K: Into<Key<'k>> + Copy,
        R: KeyRequest<'k> + NearestRow,
    {
        batch::check_keys(keys)?;
        let requests: Vec<R> = keys.iter().map(|key| R::from_checked((*key).into())).collect();
        Ok(self.call_with_schema(&requests)?.0)
    }

    /// Sends requests for rows of the whole table. Returns their rows, and for each of them the schema of the table
    /// that it comes from, or `None` if there is no row or if that table has no schema. Rows of different nodes can
    /// have different schemas.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn call_with_schema<R: NearestRow>(&mut self, requests: &[R]) -> Result<RowsWithSchemas, ClientError> {
        let (mut rows, mut schemas) = (vec![None; requests.len()], vec![None; requests.len()]);
        if requests.is_empty() {
            return Ok((rows, schemas));
        }
        self.ask_all(
            |client, slots| ask(client, slots, requests),
            |found| {
                for (at, (row, schema)) in found.results.into_iter().zip(found.schemas).enumerate() {
                    if let Some(row) = row
                        && rows[at].as_ref().is_none_or(|nearest: &Row| R::is_nearer(&row.0, &nearest.0))
                    {
                        (rows[at], schemas[at]) = (Some(row), schema);
                    }
                }
            },
        )?;
        Ok((rows, schemas))
    }

    /// Returns the type of the table's keys: see [`Client::key_type`]. From then on, the client expects keys of this
    /// type on all nodes.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn key_type(&mut self) -> Result<KeyType, ClientError> {
        let mut key_type = None;
        self.ask_any(self.deadline(), |client| client.key_type(), |found| key_type = Some(found))?;
        self.expected_key_type = key_type;
        Ok(key_type.expect("a call without an error has an answer"))
    }

    /// Returns the number of keys in a range.
    ///
    /// A node whose file has rows that other nodes answer for, as after a move of slots, sends its keys, and the client
    /// counts those of the node's slots. Other nodes send no rows.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`], and [`ClientError::MixedKeys`] if the ends of the range are of different
    /// kinds.
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

    /// Iterates over all rows in key order, as [`ClusterClient::range`] does.
    pub fn iter(&mut self) -> ClusterRows<'_> {
        ClusterRows { client: self, rest: Some(KeyRange::from(Bounds::ALL)), page: Vec::new().into_iter() }
    }

    /// Iterates over the rows whose keys are in a range, in key order. No request is sent before the first row is
    /// taken.
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

    /// Returns the first rows of a range: as many as all nodes together know to be next. [`ClusterPage::rest`] is the
    /// range to request next.
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
        let mut rows: Vec<(Row, Option<Arc<Schema>>)> = Vec::new();
        // The rows beyond the end of a page that is not the node's last one are not known yet. This is the nearest end.
        let mut known_to: Option<OwnedKey> = None;
        self.ask_all(
            |client, slots| ask(client, slots, &[request]),
            |found| {
                for (page, schema) in found.results.iter().zip(found.schemas) {
                    let mut ends = page.iter();
                    let end = if is_backward { ends.next() } else { ends.next_back() };
                    let end = end.filter(|_| page.rest().is_some()).map(|(key, _)| OwnedKey::from(key));
                    known_to = match (known_to.take(), end) {
                        (Some(known), Some(end)) => Some(if is_before(&end, &known) { end } else { known }),
                        (known, end) => known.or(end),
                    };
                    let page = page.iter().map(|(key, value)| (OwnedKey::from(key), value.to_vec()));
                    rows.extend(page.map(|row| (row, schema.clone())));
                }
            },
        )?;
        rows.retain(|((key, _), _)| known_to.as_ref().is_none_or(|end| !is_before(end, key)));
        rows.sort_by(|((a, _), _), ((b, _), _)| a.cmp(b));
        // A row that two nodes have is the same row.
        rows.dedup_by(|((a, _), _), ((b, _), _)| a == b);
        let KeyRange { start, end } = KeyRange::from(request.bounds);
        let rest = known_to.map(|known_to| match is_backward {
            true => KeyRange::new(start, Bound::Excluded(known_to)),
            false => KeyRange::new(Bound::Excluded(known_to), end),
        });
        let (rows, schemas) = rows.into_iter().unzip();
        Ok(ClusterPage { rows, schemas, rest })
    }

    /// Makes a call to one node for each slot, and passes each result to `answered`.
    fn ask_all<T: Send>(
        &mut self,
        call: impl Fn(&mut Client, &SlotSet) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(T),
    ) -> Result<(), ClientError> {
        let of_slots = |client: &mut Client, items: &[u16]| {
            let mut slots = SlotSet::NONE;
            items.iter().for_each(|slot| slots.insert(*slot));
            call(client, &slots)
        };
        let all_slots = (0..SLOT_COUNT).collect();
        self.answer_all(all_slots, |_, slot| *slot, self.deadline(), of_slots, |_, result| answered(result))
    }
}

struct Answers<T> {
    results: Vec<T>,
    /// For each result, the schema of the file that it comes from.
    schemas: Vec<Option<Arc<Schema>>>,
    /// The file that the last result comes from.
    file: ServedFile,
}

/// Sends requests to a node that answers for some slots, in batches that are each answered from one file. All files
/// have the rows of the node's slots.
fn ask<R: TypedRequest + Copy>(
    client: &mut Client,
    slots: &SlotSet,
    requests: &[R],
) -> Result<Answers<R::Output>, ClientError> {
    let mut answers =
        Answers { results: Vec::with_capacity(requests.len()), schemas: Vec::new(), file: ServedFile::NONE };
    for batch in requests.chunks(BATCH_LEN_MAX) {
        let (file, schema) = ask_one_file(client, batch, &mut answers.results)?;
        // A row of a missing slot could be the nearest one, so a partial answer is not an answer.
        if !slots.is_subset(&file.slots) {
            let request = "rows in key order, because the node lacks some of them".to_owned();
            return Err(ClientError::Moved { server: client.target.address.clone(), request });
        }
        answers.file = file;
        answers.schemas.resize(answers.results.len(), client.columns.set_schema(schema));
    }
    Ok(answers)
}

/// Sends requests between two requests for Info, and appends their results. Repeats all of them if the node has
/// replaced its file in between. Returns the file and its schema.
fn ask_one_file<R: TypedRequest + Copy>(
    client: &mut Client,
    requests: &[R],
    results: &mut Vec<R::Output>,
) -> Result<(ServedFile, Option<Schema>), ClientError> {
    let start = results.len();
    for _ in 0..=TABLE_CHANGES_MAX {
        let (mut files, mut schema) = (Vec::new(), None);
        client.exchange(batch::between(
            Guards { before: &[Op::Info, Op::Schema], after: Op::Info },
            requests[0].op(),
            requests.len(),
            |at| requests[at],
            |at, response| {
                results.truncate(start + at);
                results.push(requests[at].decode(response)?);
                Ok(())
            },
            |at, response| {
                match at {
                    0 => files = vec![ServedFile::of(&GetInfo.decode(response)?)?],
                    1 => schema = GetSchema.decode(response)?,
                    _ => files.push(ServedFile::of(&GetInfo.decode(response)?)?),
                }
                Ok(())
            },
        ))?;
        if let Ok([before, after]) = <[ServedFile; 2]>::try_from(files)
            && before == after
        {
            return Ok((after, schema));
        }
    }
    Err(ClientError::TableUnstable { server: client.target.address.clone(), changes: TABLE_CHANGES_MAX + 1 })
}

#[derive(Debug, PartialEq)]
struct ServedFile {
    generation: Option<String>,
    /// The type of the file's keys.
    key_type: KeyType,
    /// The slots whose rows the file has.
    slots: SlotSet,
}

impl ServedFile {
    const NONE: ServedFile = ServedFile { generation: None, key_type: KeyType::BYTES, slots: SlotSet::NONE };

    /// Returns the file that a response to Info describes. If the file has too many ranges of slots for a line, Info
    /// also has a digit for every four slots.
    fn of(info: &Info) -> Result<ServedFile, RequestError> {
        let (digits, ranges) = (info.get("cluster_file_slots_digits"), info.get("cluster_file_slots"));
        let slots = match digits {
            Some(digits) => SlotSet::from_digits(digits),
            None => ranges.unwrap_or("none").parse().ok(),
        };
        let text = digits.or(ranges).unwrap_or_default();
        let slots = slots.ok_or(RequestError::Violation(Violation::FileSlots { len_bytes: text.len() }))?;
        let key_type = info.get("keys").unwrap_or_default();
        let key_type =
            key_type.parse().map_err(|_| RequestError::Violation(Violation::KeyType { len_bytes: key_type.len() }))?;
        Ok(ServedFile { generation: info.get("generation").map(str::to_owned), key_type, slots })
    }
}

/// Returns the number of keys of a range that have some slots.
fn count_in(client: &mut Client, slots: &SlotSet, range: &KeyRange) -> Result<u64, ClientError> {
    let count = Count::new(range.bounds())?;
    let found = ask(client, slots, &[count])?;
    // Without other slots in the file, its rows are those to count.
    if found.file.slots.is_subset(slots) {
        return Ok(found.results.into_iter().sum());
    }
    let (mut keys, mut rest) = (0, Some(range.clone()));
    while let Some(range) = rest.take() {
        let request = GetPage::first(range.bounds(), 0)?;
        let Answers { results, file, .. } = ask(client, slots, &[request])?;
        for page in results {
            keys += page.iter().filter(|(key, _)| slots.has(slot_of_typed(file.key_type, *key))).count() as u64;
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

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.page.next() {
                return Some(Ok(row));
            }
            match self.client.first_page(self.rest.as_ref()?.bounds()) {
                Ok(ClusterPage { rows, rest, .. }) => (self.page, self.rest) = (rows.into_iter(), rest),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
