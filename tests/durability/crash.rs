//! Models the possible contents of a disk after a power loss.
//!
//! The model is harsher than any single file system. Each sector that was written since the last sync of its file may
//! be on the disk or not, in any order, and so may each change of the file's length. Each operation on names since the
//! last sync of their folder may be on the disk or not, whether or not the bytes of the files are.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{Files, Inode, Op};
use crate::helpers::random::Random;

/// The state of a disk at a moment when the power may fail.
pub(crate) struct Disk {
    names: BTreeMap<PathBuf, Inode>,
    unsynced_names: Vec<NameOp>,
    contents: HashMap<Inode, Content>,
}

#[derive(Clone)]
enum NameOp {
    Link { name: PathBuf, inode: Inode },
    Rename { from: PathBuf, to: PathBuf, inode: Inode },
    Unlink { name: PathBuf },
}

#[derive(Default)]
struct Content {
    synced: Vec<u8>,
    unsynced: Vec<DataOp>,
}

enum DataOp {
    Write { at_bytes: usize, bytes: Arc<[u8]> },
    Resize { len_bytes: usize },
}

/// The probabilities, in percent, that an unsynced change is on the disk.
const SHARES: [usize; 6] = [0, 100, 50, 50, 10, 90];
/// The sizes that disks write atomically.
const SECTORS_LEN_BYTES: [usize; 2] = [512, 4096];

impl Disk {
    /// Returns a disk on which everything is synced.
    pub(crate) fn new(files: &Files) -> Disk {
        let content = |content: &Vec<u8>| Content { synced: content.clone(), unsynced: Vec::new() };
        Disk {
            names: files.names.clone(),
            unsynced_names: Vec::new(),
            contents: files.contents.iter().map(|(inode, bytes)| (*inode, content(bytes))).collect(),
        }
    }

    /// Applies an operation of a program.
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { inode, at_bytes, bytes } => {
                let op = DataOp::Write { at_bytes: *at_bytes as usize, bytes: Arc::clone(bytes) };
                self.contents.entry(*inode).or_default().unsynced.push(op);
            }
            Op::Resize { inode, len_bytes } => {
                let op = DataOp::Resize { len_bytes: *len_bytes as usize };
                self.contents.entry(*inode).or_default().unsynced.push(op);
            }
            Op::Sync { inode } => {
                let content = self.contents.entry(*inode).or_default();
                content.synced = content.current();
                content.unsynced.clear();
            }
            Op::Link { name, inode } => {
                self.unsynced_names.push(NameOp::Link { name: name.clone(), inode: *inode });
            }
            Op::Rename { from, to } => {
                let inode = self.current_names()[from];
                self.unsynced_names.push(NameOp::Rename { from: from.clone(), to: to.clone(), inode });
            }
            Op::Unlink { name } => self.unsynced_names.push(NameOp::Unlink { name: name.clone() }),
            Op::SyncFolder { folder } => {
                let (synced, unsynced) = std::mem::take(&mut self.unsynced_names)
                    .into_iter()
                    .partition(|op| op.names().any(|name| name.parent() == Some(folder)));
                let synced: Vec<NameOp> = synced;
                synced.iter().for_each(|op| op.apply(&mut self.names));
                self.unsynced_names = unsynced;
            }
            Op::Reported => {}
        }
    }

    fn current_names(&self) -> BTreeMap<PathBuf, Inode> {
        let mut names = self.names.clone();
        self.unsynced_names.iter().for_each(|op| op.apply(&mut names));
        names
    }

    /// Returns the files as running programs see them.
    pub(crate) fn current(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let content = |inode: &Inode| self.contents.get(inode).map(Content::current).unwrap_or_default();
        self.current_names().into_iter().map(|(name, inode)| (name, content(&inode))).collect()
    }

    /// Returns files that may be on the disk after the power has failed now.
    pub(crate) fn after_power_loss(&self, random: &mut Random) -> BTreeMap<PathBuf, Vec<u8>> {
        let (names_share, data_share) = (SHARES[random.below(SHARES.len())], SHARES[random.below(SHARES.len())]);
        let mut names = self.names.clone();
        for op in &self.unsynced_names {
            if random.below(100) < names_share {
                op.apply(&mut names);
            }
        }
        let mut content = |inode: &Inode| match self.contents.get(inode) {
            Some(content) => content.after_power_loss(data_share, random),
            None => Vec::new(),
        };
        names.into_iter().map(|(name, inode)| (name, content(&inode))).collect()
    }
}

impl NameOp {
    fn names(&self) -> impl Iterator<Item = &Path> {
        let (first, second) = match self {
            NameOp::Link { name, .. } | NameOp::Unlink { name } => (name, None),
            NameOp::Rename { from, to, .. } => (from, Some(to)),
        };
        [Some(first), second].into_iter().flatten().map(PathBuf::as_path)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Inode>) {
        match self {
            NameOp::Link { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            NameOp::Rename { from, to, inode } => {
                // Another file may have the first name if the link before was lost.
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            NameOp::Unlink { name } => {
                names.remove(name);
            }
        }
    }
}

impl Content {
    fn current(&self) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for op in &self.unsynced {
            match op {
                DataOp::Write { at_bytes, bytes: written } => put(&mut bytes, *at_bytes, written, 0),
                DataOp::Resize { len_bytes } => bytes.resize(*len_bytes, 0),
            }
        }
        bytes
    }

    fn after_power_loss(&self, share: usize, random: &mut Random) -> Vec<u8> {
        if self.unsynced.is_empty() {
            return self.synced.clone();
        }
        let sector_len_bytes = SECTORS_LEN_BYTES[random.below(SECTORS_LEN_BYTES.len())];
        // Where the new length is on the disk and the bytes are not, the file has zeros or old bytes of another file.
        let filler = [0, 0xa5][random.below(2)];
        let mut bytes = self.synced.clone();
        for op in &self.unsynced {
            match op {
                DataOp::Write { at_bytes, bytes: written } => {
                    let mut begin = 0;
                    while begin < written.len() {
                        let at_bytes = at_bytes + begin;
                        let end = (begin + sector_len_bytes - at_bytes % sector_len_bytes).min(written.len());
                        if random.below(100) < share {
                            put(&mut bytes, at_bytes, &written[begin..end], filler);
                        }
                        begin = end;
                    }
                }
                DataOp::Resize { len_bytes } => {
                    if random.below(100) < share {
                        bytes.resize(*len_bytes, filler);
                    }
                }
            }
        }
        let len_bytes = [bytes.len(), self.synced.len(), self.current().len()][random.below(3)];
        bytes.resize(len_bytes, filler);
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, at_bytes: usize, written: &[u8], filler: u8) {
    let end = at_bytes + written.len();
    if bytes.len() < end {
        bytes.resize(end, filler);
    }
    bytes[at_bytes..end].copy_from_slice(written);
}
