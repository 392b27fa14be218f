//! Values that clients keep in memory.
//!
//! In: the state of a server, keys, and values that it sent in this state. Out: the values, for as long as a connection is
//! in the same state. A state names the server's run, its generation, its slots, and the user of the connection; the server
//! sends a notice when it changes. A value is found only under the state in which it was received, so the connections that
//! share a cache need no order among each other. As a server can claim any state, a value is also found only under the
//! address of the server that sent it.
//!
//! Each state has a table of entries. If there is too little room, an entry of the largest table is evicted: the first one
//! after the clock's hand that was not found since the hand last passed it. The table of a state is dropped when the last
//! connection leaves the state. An idle connection of a pool may stay in an old state for long, so a table that has not
//! been used lately gives way before the largest one.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard};

use super::address::Address;
use super::columns::ReceivedValues;
use crate::format::key::Key;
use crate::protocol::native::StateId;
use crate::sync::unpoisoned;
use crate::typed::Schema;

/// How many bytes an entry takes in addition to its key and its value: its place in two growing tables, each of which can
/// have as many free places as used ones, and the header of an allocation.
const ENTRY_LEN_BYTES: usize = 192;
/// The memory of a table with fewer places for entries is not released before the table is dropped.
const PLACES_MIN: usize = 64;
/// A table is not used lately if, for each table, this many other uses have followed its last one.
const USES_PER_TABLE: u64 = 64;
/// An entry takes at most this part of a cache, so that one long value does not evict all others.
const ENTRY_PART_MAX: usize = 8;

/// Values of hot keys, which clients keep in memory. It takes at most a number of bytes, and also has the keys that a table
/// does not have.
///
/// A client with a cache asks the server to announce each new table, and sends no request for a key whose value it has. A
/// lookup first reads the announcements that have arrived, without waiting: a value of an old table is never returned after
/// that. As long as an announcement is on its way, lookups can still return values of the old table. Without a connection
/// to the server, the cache has no values.
///
/// Clones share their values. Clients with clones of one cache, also those of a pool or of a cluster, share its values and
/// its limit. Values of different servers, or of different users, are never mixed up.
///
/// # Example
/// ```no_run
/// use zero_kv::client::{Cache, Client, Options};
///
/// let options = Options { cache: Some(Cache::new(64 << 20)), ..Options::default() };
/// let mut client = Client::connect_with("/tmp/zero-kv.sock", &options)?;
/// assert_eq!(client.get(7)?, client.get(7)?, "the second call sends no request");
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

struct Shared {
    max_bytes: usize,
    /// A child process has no threads that could unlock a mutex that its parent has locked.
    process_id: u32,
    hasher: RandomState,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    tables: Vec<Table>,
    held_bytes: usize,
    /// The number of lookups and insertions.
    uses: u64,
}

/// What identifies the entries of a state: the state, and the server that is in it.
#[derive(Clone, PartialEq, Eq)]
struct StateKey {
    id: StateId,
    server: Address,
}

/// The entries of one state.
struct Table {
    state: StateKey,
    /// The number of connections that are in the state.
    connections: usize,
    /// The schema of the table in this state. `None` if it is unknown.
    schema: Option<Option<Arc<Schema>>>,
    entries: Vec<Entry>,
    /// The position of the entry with a hash.
    positions: HashMap<u64, u32, BuildHasherDefault<HashIsKey>>,
    hand: usize,
    held_bytes: usize,
    /// [`Tables::uses`] at the last use of this table.
    last_use: u64,
}

struct Entry {
    hash: u64,
    /// The key, and then the value.
    bytes: Box<[u8]>,
    key_len_bytes: u32,
    is_number: bool,
    /// Whether the table has the key.
    is_found: bool,
    /// Whether the entry was found since the clock's hand last passed it.
    is_used: bool,
}

/// Hashes that are used as they are.
#[derive(Default)]
struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Cache {
    /// Creates an empty cache, whose entries take at most `max_bytes`: keys, values, and about 192 bytes for each entry.
    /// Values that would take more than an eighth of the cache are not kept.
    pub fn new(max_bytes: usize) -> Cache {
        let (process_id, hasher) = (process::id(), RandomState::new());
        Cache(Arc::new(Shared { max_bytes, process_id, hasher, tables: Mutex::default() }))
    }

    /// Returns the maximum number of bytes that the entries take.
    pub fn max_bytes(&self) -> usize {
        self.0.max_bytes
    }

    /// Returns the number of bytes that the entries take.
    pub fn held_bytes(&self) -> usize {
        self.tables().held_bytes
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.tables().tables.iter().map(|table| table.entries.len()).sum()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        unpoisoned(&self.0.tables)
    }

    /// Returns the part of the cache for a connection to a server that is in a state.
    #[doc(hidden)]
    pub fn enter(&self, server: &Address, state: StateId) -> CacheInState {
        let state = StateKey { id: state, server: server.clone() };
        let mut tables = self.tables();
        match tables.position(&state) {
            Some(position) => tables.tables[position].connections += 1,
            None => tables.tables.push(Table::new(state.clone())),
        }
        CacheInState { cache: self.clone(), state }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("max_bytes", &self.max_bytes()).finish_non_exhaustive()
    }
}

/// The entries of the state that a connection is in.
#[doc(hidden)]
pub struct CacheInState {
    cache: Cache,
    state: StateKey,
}

impl CacheInState {
    pub fn state(&self) -> StateId {
        self.state.id
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Adds the values of the keys that are cached to `values`, which has none of them, and returns the positions of the
    /// other keys, whose values are missing.
    pub fn look_up<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K], values: &mut ReceivedValues) -> Vec<usize> {
        let mut missing = Vec::new();
        let mut tables = self.cache.tables();
        let mut table = tables.begin_use(&self.state);
        for (position, key) in keys.iter().enumerate() {
            let key = (*key).into();
            let found = table.as_deref_mut().and_then(|table| table.find(self.cache.hash(key), key));
            values.push(found.flatten());
            if found.is_none() {
                missing.push(position);
            }
        }
        missing
    }

    /// Keeps the values of keys, or `None` for keys that the table does not have.
    pub fn insert<'k, 'v>(&self, values: impl Iterator<Item = (Key<'k>, Option<&'v [u8]>)>) {
        let max_bytes = self.cache.0.max_bytes;
        let mut tables = self.cache.tables();
        tables.begin_use(&self.state);
        for (key, value) in values {
            let held_bytes = Entry::held_bytes_of(key, value);
            if held_bytes <= max_bytes / ENTRY_PART_MAX {
                tables.make_room(held_bytes, max_bytes);
                tables.insert(&self.state, Entry::new(self.cache.hash(key), key, value));
            }
        }
    }

    /// Returns the schema of the table in this state, or `None` if it is unknown.
    pub fn schema(&self) -> Option<Option<Arc<Schema>>> {
        self.cache.tables().find(&self.state)?.schema.clone()
    }

    pub fn set_schema(&self, schema: Option<Arc<Schema>>) {
        if let Some(table) = self.cache.tables().find(&self.state) {
            table.schema = Some(schema);
        }
    }
}

impl Drop for CacheInState {
    fn drop(&mut self) {
        if self.cache.0.process_id != process::id() {
            return;
        }
        let mut tables = self.cache.tables();
        let left = tables.leave(&self.state);
        // The memory is released after the lock.
        drop(tables);
        drop(left);
    }
}

impl fmt::Debug for CacheInState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheInState").field("state", &self.state.id).finish_non_exhaustive()
    }
}

impl Cache {
    fn hash(&self, key: Key<'_>) -> u64 {
        match key {
            Key::U64(number) => self.0.hasher.hash_one(number),
            Key::Bytes(bytes) => self.0.hasher.hash_one(bytes),
        }
    }
}

impl Tables {
    fn position(&self, state: &StateKey) -> Option<usize> {
        self.tables.iter().position(|table| table.state == *state)
    }

    fn find(&mut self, state: &StateKey) -> Option<&mut Table> {
        self.tables.iter_mut().find(|table| table.state == *state)
    }

    /// Returns the table of a state, and notes that it is used.
    fn begin_use(&mut self, state: &StateKey) -> Option<&mut Table> {
        self.uses += 1;
        let uses = self.uses;
        let table = self.find(state)?;
        table.last_use = uses;
        Some(table)
    }

    /// Removes a connection from a state. Returns the table if it was the last one.
    fn leave(&mut self, state: &StateKey) -> Option<Table> {
        let position = self.position(state)?;
        self.tables[position].connections -= 1;
        if self.tables[position].connections > 0 {
            return None;
        }
        let table = self.tables.swap_remove(position);
        self.held_bytes -= table.held_bytes;
        Some(table)
    }

    /// Evicts entries until there is room for `len_bytes`.
    fn make_room(&mut self, len_bytes: usize, max_bytes: usize) {
        let used_since = self.uses.saturating_sub(USES_PER_TABLE * self.tables.len() as u64);
        while self.held_bytes + len_bytes > max_bytes {
            let weight = |table: &Table| (table.last_use < used_since && table.held_bytes > 0, table.held_bytes);
            let Some(table) = self.tables.iter_mut().max_by_key(|table| weight(table)) else { return };
            self.held_bytes -= table.evict();
        }
    }

    fn insert(&mut self, state: &StateKey, entry: Entry) {
        let Some(table) = self.tables.iter_mut().find(|table| table.state == *state) else { return };
        self.held_bytes += entry.held_bytes();
        self.held_bytes -= table.insert(entry);
    }
}

impl Table {
    fn new(state: StateKey) -> Table {
        Table {
            state,
            connections: 1,
            schema: None,
            entries: Vec::new(),
            positions: HashMap::default(),
            hand: 0,
            held_bytes: 0,
            last_use: 0,
        }
    }

    /// Returns the value of a key, or `None` if it is not cached.
    fn find(&mut self, hash: u64, key: Key<'_>) -> Option<Option<&[u8]>> {
        let position = *self.positions.get(&hash)?;
        let entry = &mut self.entries[position as usize];
        if !entry.is_of(key) {
            return None;
        }
        entry.is_used = true;
        Some(entry.value())
    }

    /// Adds an entry, or replaces the one with its hash. Returns the number of bytes that the replaced entry took.
    fn insert(&mut self, entry: Entry) -> usize {
        self.held_bytes += entry.held_bytes();
        if let Some(position) = self.positions.get(&entry.hash) {
            let replaced = std::mem::replace(&mut self.entries[*position as usize], entry);
            self.held_bytes -= replaced.held_bytes();
            return replaced.held_bytes();
        }
        // A cache of 2³² entries would take more than 800 GB.
        let Ok(position) = u32::try_from(self.entries.len()) else {
            self.held_bytes -= entry.held_bytes();
            return entry.held_bytes();
        };
        self.positions.insert(entry.hash, position);
        self.entries.push(entry);
        0
    }

    /// Evicts an entry that was not found lately. Returns the number of bytes that it took.
    fn evict(&mut self) -> usize {
        loop {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            let entry = &mut self.entries[self.hand];
            if std::mem::take(&mut entry.is_used) {
                self.hand += 1;
                continue;
            }
            // The last entry takes the place of the evicted one.
            let evicted = self.entries.swap_remove(self.hand);
            self.positions.remove(&evicted.hash);
            if let Some(moved) = self.entries.get(self.hand) {
                self.positions.insert(moved.hash, self.hand as u32);
                self.hand += 1;
            }
            self.held_bytes -= evicted.held_bytes();
            self.release_places();
            return evicted.held_bytes();
        }
    }

    /// Releases free places, unless there are at most as many as used ones. A table shrinks if others grow at its cost.
    fn release_places(&mut self) {
        let used = self.entries.len();
        if self.entries.capacity() > PLACES_MIN.max(2 * used) {
            self.entries.shrink_to(used + used / 2);
            self.positions.shrink_to(used + used / 2);
        }
    }
}

impl Entry {
    fn new(hash: u64, key: Key<'_>, value: Option<&[u8]>) -> Entry {
        let number;
        let key_bytes = match key {
            Key::U64(key) => {
                number = key.to_ne_bytes();
                &number[..]
            }
            Key::Bytes(key) => key,
        };
        Entry {
            hash,
            bytes: [key_bytes, value.unwrap_or_default()].concat().into(),
            key_len_bytes: key_bytes.len() as u32,
            is_number: matches!(key, Key::U64(_)),
            is_found: value.is_some(),
            is_used: false,
        }
    }

    /// Returns what an entry with a key and a value would take. Long values are not copied to find out.
    fn held_bytes_of(key: Key<'_>, value: Option<&[u8]>) -> usize {
        let key_len_bytes = match key {
            Key::U64(key) => size_of_val(&key),
            Key::Bytes(key) => key.len(),
        };
        ENTRY_LEN_BYTES + key_len_bytes + value.map_or(0, <[u8]>::len)
    }

    fn held_bytes(&self) -> usize {
        ENTRY_LEN_BYTES + self.bytes.len()
    }

    fn is_of(&self, key: Key<'_>) -> bool {
        let found = &self.bytes[..self.key_len_bytes as usize];
        match key {
            Key::U64(key) => self.is_number && found == key.to_ne_bytes(),
            Key::Bytes(key) => !self.is_number && found == key,
        }
    }

    fn value(&self) -> Option<&[u8]> {
        self.is_found.then(|| &self.bytes[self.key_len_bytes as usize..])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STATES: [StateId; 3] = [[1; 16], [2; 16], [3; 16]];

    fn server(path: &str) -> Address {
        Address::Unix(path.into())
    }

    fn value_of(cache: &CacheInState, key: Key<'_>) -> Option<Option<Vec<u8>>> {
        let mut values = ReceivedValues::default();
        let missing = cache.look_up(&[key], &mut values);
        missing.is_empty().then(|| values.iter().next().unwrap().map(<[u8]>::to_vec))
    }

    fn insert(cache: &CacheInState, key: Key<'_>, value: Option<&[u8]>) {
        cache.insert(std::iter::once((key, value)));
    }

    #[test]
    fn values_are_found_only_in_their_state() {
        let cache = Cache::new(1 << 20);
        let [one, other] = [0, 1].map(|state| cache.enter(&server("s"), STATES[state]));
        for key in [Key::U64(7), Key::Bytes(b"seven"), Key::Bytes(&7_u64.to_ne_bytes())] {
            assert_eq!(value_of(&one, key), None);
            insert(&one, key, Some(b"one"));
            assert_eq!(value_of(&other, key), None);
            insert(&other, key, None);
            assert_eq!((value_of(&one, key), value_of(&other, key)), (Some(Some(b"one".to_vec())), Some(None)));
        }
        assert_eq!(cache.len(), 6);
        // Another connection keeps the values of a state.
        let again = cache.enter(&server("s"), STATES[0]);
        drop(one);
        assert_eq!(value_of(&again, Key::U64(7)), Some(Some(b"one".to_vec())));
        drop(again);
        assert_eq!(cache.len(), 3);
        drop(other);
        assert_eq!((cache.len(), cache.held_bytes(), cache.is_empty()), (0, 0, true));
    }

    #[test]
    fn a_server_has_no_part_in_the_values_of_another_one_whose_state_it_claims() {
        let cache = Cache::new(1 << 20);
        let [one, other] = ["one", "other"].map(|path| cache.enter(&server(path), STATES[0]));
        insert(&one, Key::U64(7), Some(b"one"));
        assert_eq!(value_of(&other, Key::U64(7)), None);
        insert(&other, Key::U64(8), Some(b"other"));
        assert_eq!(value_of(&one, Key::U64(8)), None);
        other.set_schema(None);
        assert!(one.schema().is_none() && other.schema().is_some());
        drop(one);
        assert_eq!((cache.len(), value_of(&other, Key::U64(8))), (1, Some(Some(b"other".to_vec()))));
    }

    #[test]
    fn an_idle_connection_in_an_old_state_takes_no_room_from_the_others() {
        let cache = Cache::new(100_000);
        let [idle, busy] = [0, 1].map(|state| cache.enter(&server("s"), STATES[state]));
        let fill = |state: &CacheInState| {
            for key in 0..1000 {
                insert(state, Key::U64(key), Some(b"value"));
            }
        };
        fill(&idle);
        assert!(cache.held_bytes() > 99_000);
        (0..5).for_each(|_| fill(&busy));
        let lens = |tables: &Tables| tables.tables.iter().map(|table| table.entries.len()).collect::<Vec<_>>();
        assert_eq!(lens(&cache.tables())[0], 0, "{:?}", lens(&cache.tables()));
        // Both are in use.
        for key in 0..1000 {
            insert(&idle, Key::U64(key), Some(b"value"));
            insert(&busy, Key::U64(key), Some(b"value"));
        }
        let found = lens(&cache.tables());
        assert!(found[0].abs_diff(found[1]) <= 1, "{found:?}");
    }

    #[test]
    fn tables_that_others_have_displaced_take_no_memory() {
        let cache = Cache::new(1 << 20);
        let states: Vec<CacheInState> = (0..20).map(|state| cache.enter(&server("s"), [state; 16])).collect();
        for state in &states {
            state.insert((0..10_000).map(|key| (Key::U64(key), Some(&b"value"[..]))));
        }
        let tables = cache.tables();
        for table in &tables.tables {
            let places = PLACES_MIN.max(2 * table.entries.len());
            assert!(table.entries.capacity() <= places, "{} for {places}", table.entries.capacity());
            assert!(table.positions.capacity() <= 4 * places, "{} for {places}", table.positions.capacity());
        }
        assert!(tables.held_bytes > (1 << 20) / 2);
    }

    #[test]
    fn a_random_cache_agrees_with_a_model_and_stays_within_its_limit() {
        let mut random = 46_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for max_bytes in [0, 1, 1000, 20_000, 1 << 20] {
            let cache = Cache::new(max_bytes);
            let mut model: BTreeMap<(usize, u64), Option<Vec<u8>>> = BTreeMap::new();
            let mut states: Vec<CacheInState> = STATES.iter().map(|state| cache.enter(&server("s"), *state)).collect();
            let mut hits = 0;
            for step in 0..20_000 {
                let (state, key) = (next(3), next(300) as u64);
                match next(100) {
                    0 => {
                        model.retain(|(of, _), _| *of != state);
                        // The last connection leaves the state, and a new one enters it.
                        let left = states.remove(state);
                        drop(left);
                        states.insert(state, cache.enter(&server("s"), STATES[state]));
                    }
                    1..=40 => {
                        let value = (next(5) > 0).then(|| vec![step as u8; next(200)]);
                        insert(&states[state], Key::U64(key), value.as_deref());
                        model.insert((state, key), value);
                    }
                    _ => {
                        if let Some(found) = value_of(&states[state], Key::U64(key)) {
                            hits += 1;
                            assert_eq!(Some(&found), model.get(&(state, key)));
                        }
                    }
                }
                assert!(cache.held_bytes() <= max_bytes, "{} of {max_bytes}", cache.held_bytes());
                let tables = cache.tables();
                let held: usize = tables.tables.iter().flat_map(|table| &table.entries).map(Entry::held_bytes).sum();
                assert_eq!(held, tables.held_bytes);
                assert!(tables.tables.iter().all(|table| table.positions.len() == table.entries.len()));
            }
            assert_eq!(hits > 0, max_bytes > 10_000, "{hits} with {max_bytes}");
        }
    }

    #[test]
    fn keys_that_are_found_often_outlive_a_scan() {
        let cache = Cache::new(1000 * (ENTRY_LEN_BYTES + 8 + 10));
        let state = cache.enter(&server("s"), STATES[0]);
        let hot = || (0..500).map(Key::U64);
        state.insert(hot().map(|key| (key, Some(&b"0123456789"[..]))));
        for scan in 0..10 {
            let mut values = ReceivedValues::default();
            let keys: Vec<Key<'_>> = hot().collect();
            assert!(state.look_up(&keys, &mut values).is_empty(), "scan {scan}");
            state.insert((1000..1400).map(|key| (Key::U64(scan * 1000 + key), Some(&b"0123456789"[..]))));
        }
        // A value that would take most of the cache is not kept.
        insert(&state, Key::U64(9), Some(&[0; 100_000]));
        assert_eq!(value_of(&state, Key::U64(9)), Some(Some(b"0123456789".to_vec())));
    }
}
