//! Simulates a direct client: its mapped file, and its batches.

use super::*;

/// A direct client: a process that maps the file of a generation.
pub(super) struct Client {
    pub(super) file: usize,
    /// The shared page as it was before the client read any byte of the file.
    pub(super) page: Page,
    pub(super) blocks: Blocks,
    /// The file's modification time when the client received the file.
    pub(super) modified: u64,
}

/// Passes the server's file to the client.
pub(super) fn pass_file_to_client() {
    // Mirrors `may_map`, with which the server decides whether a client may map the file.
    let generation = served();
    let epoch = generation.blocks.epoch();
    if epoch.is_distrust() || !generation.blocks.accept(epoch, || generation.is_unchanged()) {
        return;
    }
    pause();
    let (file, page) = (generation.number, world(|world| world.page));
    if page.generation != file || !page.is_trusted() {
        return;
    }
    pause();
    let client = Client { file, page, blocks: Blocks::of_records(1).unwrap(), modified: Descriptor(file).modified() };
    // Without a lease, a write can be in flight that still changes bytes but no longer changes the file's modification
    // time.
    if client.standing() == Standing::Unchanged {
        CLIENT.set(Some(Rc::new(client)));
    }
}

impl Client {
    /// Mirrors `Notice::standing_since`, which reads the deadline first, then the owner word, the state, and the clock.
    pub(super) fn standing(&self) -> Standing {
        let until_ns = world(|world| world.page.until_ns);
        pause();
        let is_ownerless = world(|world| world.page.is_ownerless);
        pause();
        let page = world(|world| world.page);
        let is_since = page.count == self.page.count;
        let is_leased = page.is_leased && !page.is_changed && is_since;
        if is_leased && !is_ownerless {
            return if Descriptor(self.file).now_ns() < until_ns { Standing::Unchanged } else { Standing::Expired };
        }
        match page.generation == self.file && (!page.is_trusted() || self.page.is_leased && !is_since) {
            true => Standing::Changed,
            false => Standing::Unknown,
        }
    }
}

/// Mirrors a lookup in direct mode, which calls `MappedStore::copied`.
pub(super) fn batch_of_client() {
    let Some(client) = CLIENT.with_borrow(Option::clone) else { return };
    let (epoch, file) = (client.blocks.epoch(), Descriptor(client.file));
    pause();
    let Some(copied) = look_up(&client.blocks, epoch, &file) else { return };
    let is_accepted = match client.standing() {
        Standing::Unchanged => true,
        Standing::Changed => {
            client.blocks.distrust(epoch);
            false
        }
        // For `Unknown`, the real client would accept the batch, even if the bytes are wrong. This is a documented
        // limit: without the server, nothing reveals a write that does not change the modification time.
        Standing::Expired | Standing::Unknown if world(|world| world.files[client.file].hides_writes) => false,
        Standing::Expired | Standing::Unknown => client.blocks.accept(epoch, || file.modified() == client.modified),
    };
    if is_accepted {
        record_accepted(copied, &file, "the client");
    }
}
