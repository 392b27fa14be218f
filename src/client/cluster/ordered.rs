//! Ordered lookups in a cluster.
//!
//! In: keys and ranges. Out: the nearest rows, numbers of keys, and rows in key order, of the whole table. Every slot is
//! asked from one node, all nodes at the same time, and the results are combined. Ordered requests name no slot, so a node
//! answers them for all rows of its file. Before and after each of them, this module reads which slots the file has: too
//! few are an error, and rows that another node answers for are not counted twice.

use std::ops::Bound;
use std::vec;

use super::ClusterClient;
use crate::client::blocking::Client;
use crate::client::error::ClientError;
use crate::client::key::{KeyRange, OwnedKey};
use crate::client::request::{Row, check_bounds, prefix_range};
use crate::cluster::SlotSet;
use crate::format::KeyBounds;
use crate::format::key::Key;
use crate::slots::{SLOT_COUNT, SlotRange, slot_of};

/// The slots that a node answers for in one call.
struct Share {
    slots: SlotSet,
    /// Whether the node's file has only rows of these slots.
    is_exact: bool,
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
        self.nearest_many(keys, |client, keys| client.floor_many(keys), |row, than| row.0 > than.0)
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
        self.nearest_many(keys, |client, keys| client.ceiling_many(keys), |row, than| row.0 < than.0)
    }

    /// Returns the nearest of the rows that the nodes return for each key.
    fn nearest_many<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        look_up: impl Fn(&mut Client, &[Key<'k>]) -> Result<Vec<Option<Row>>, ClientError> + Sync,
        is_nearer: impl Fn(&Row, &Row) -> bool,
    ) -> Result<Vec<Option<Row>>, ClientError> {
        let keys: Vec<Key<'k>> = keys.iter().map(|key| (*key).into()).collect();
        let mut nearest: Vec<Option<Row>> = vec![None; keys.len()];
        self.ask_all(
            |client, _| look_up(client, &keys),
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
        self.ask_all(|client, share| count_in(client, share, &range), |found| keys += found)?;
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

    /// Returns the next rows of a range, and the range of the rows after them.
    fn next_rows(&mut self, range: &KeyRange) -> Result<(Vec<Row>, Option<KeyRange>), ClientError> {
        let (mut rows, mut complete_to): (Vec<Row>, Option<OwnedKey>) = (Vec::new(), None);
        self.ask_all(
            |client, _| {
                let page = client.first_page(range.bounds(), 0)?;
                let rows: Vec<Row> = page.iter().map(|(key, value)| (OwnedKey::from(key), value.to_vec())).collect();
                Ok((rows, page.rest().is_some()))
            },
            |(found, has_more)| {
                // Rows after the last row of a page that is not the node's last one are not known yet.
                if let Some((last, _)) = found.last().filter(|_| has_more)
                    && complete_to.as_ref().is_none_or(|key| last < key)
                {
                    complete_to = Some(last.clone());
                }
                rows.extend(found);
            },
        )?;
        rows.retain(|(key, _)| complete_to.as_ref().is_none_or(|last| key <= last));
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        // A row that two nodes have is the same row.
        rows.dedup_by(|a, b| a.0 == b.0);
        Ok((rows, complete_to.map(|last| KeyRange::new(Bound::Excluded(last), range.end.clone()))))
    }

    /// Makes a call to one node for each slot, and passes each result to `answered`.
    fn ask_all<T: Send>(
        &mut self,
        call: impl Fn(&mut Client, &Share) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(T),
    ) -> Result<(), ClientError> {
        let checked = |client: &mut Client, items: &[(u16, ())]| {
            let mut slots = SlotSet::NONE;
            items.iter().for_each(|(slot, ())| slots.insert(*slot));
            let before = file_slots(client)?;
            if !slots.is_subset(&before) {
                return Err(lacks_rows(client));
            }
            let is_exact = before.is_subset(&slots);
            let result = call(client, &Share { slots, is_exact })?;
            // The node may have replaced its file between the two requests.
            match file_slots(client)? == before {
                true => Ok(result),
                false => Err(lacks_rows(client)),
            }
        };
        let all_slots = (0..SLOT_COUNT).map(|slot| (slot, ())).collect();
        self.answer_all(all_slots, checked, |_, result| answered(result))
    }
}

/// Returns the error for a node whose file lacks rows, or was replaced during a call. The call is then repeated.
fn lacks_rows(client: &Client) -> ClientError {
    let request = "rows in key order, of which the node has only some".to_owned();
    ClientError::Moved { server: client.target.address.clone(), request }
}

/// Returns the slots whose rows the file of a node has.
fn file_slots(client: &mut Client) -> Result<SlotSet, ClientError> {
    let info = client.info()?;
    let ranges = info.get("cluster_file_slots").unwrap_or("none");
    Ok(ranges.split(',').filter_map(|range| range.parse::<SlotRange>().ok()).collect())
}

/// Returns the number of keys of a range that have slots of a share.
fn count_in(client: &mut Client, share: &Share, range: &KeyRange) -> Result<u64, ClientError> {
    if share.is_exact {
        return client.count(range.bounds());
    }
    let (mut keys, mut rest) = (0, Some(range.clone()));
    while let Some(range) = rest {
        let page = client.first_page(range.bounds(), 0)?;
        keys += page.iter().filter(|(key, _)| share.slots.has(slot_of(*key))).count() as u64;
        rest = page.rest().cloned();
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
            match self.client.next_rows(self.rest.as_ref()?) {
                Ok((rows, rest)) => (self.page, self.rest) = (rows.into_iter(), rest),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
