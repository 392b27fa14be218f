//! Simulates a server: its generations, batches, and swaps, and the page that it shares with direct clients.

use super::*;

/// A generation of the server.
pub(super) struct Generation {
    pub(super) number: usize,
    pub(super) lease: Lease<Descriptor>,
    pub(super) blocks: Blocks,
    /// The file's modification time when the file was last trusted: see `stamp.rs`.
    pub(super) trusted_modified: Cell<u64>,
}

pub(super) fn served() -> Rc<Generation> {
    SERVER.with_borrow(|generations| Rc::clone(generations.last().expect("one is served")))
}

impl Generation {
    pub(super) fn file(&self) -> Descriptor {
        Descriptor(self.number)
    }

    /// Mirrors `WatchedFile::is_unchanged`.
    pub(super) fn is_unchanged(&self) -> bool {
        match self.lease.proof() {
            Proof::Unchanged => true,
            Proof::None => self.looks_unchanged(),
            Proof::Lost => false,
        }
    }

    pub(super) fn looks_unchanged(&self) -> bool {
        self.file().modified() == self.trusted_modified.get()
    }

    /// Mirrors `WatchedFile::lease`.
    pub(super) fn take_lease(&self) {
        with_lease_locked(|| self.lease.take(|| self.looks_unchanged()));
    }
}

/// Mirrors a pass of a connection with one batch. The pass keeps its generation alive until the batch ends.
pub(super) fn batch_of_server() {
    let generation = served();
    let epoch = generation.blocks.epoch();
    pause();
    let copied = look_up(&generation.blocks, epoch, &generation.file());
    pause();
    let is_accepted = generation.blocks.accept(epoch, || generation.is_unchanged());
    if let Some(copied) = copied.filter(|_| is_accepted && !world(|world| world.is_killed)) {
        record_accepted(copied, &generation.file(), "the server");
    }
}

/// Mirrors `Supervision::recheck_current` and `Store::look_again`, for an index that is intact.
pub(super) fn look_again() {
    let generation = served();
    if !generation.blocks.epoch().is_distrust() {
        return;
    }
    set_changed(true);
    if with_lease_locked(|| generation.lease.retake()).is_err() {
        return;
    }
    let modified = generation.file().modified();
    let is_held = with_lease_locked(|| generation.lease.is_held_or_unused());
    if is_held && generation.file().modified() == modified {
        generation.trusted_modified.set(modified);
        generation.blocks.trust_again(false);
        set_changed(false);
    }
}

/// Mirrors `Board::set_changed`.
fn set_changed(is_changed: bool) {
    pause();
    write_page(|page| {
        page.count += u64::from(page.is_changed != is_changed);
        page.is_changed = is_changed;
    });
    pause();
}

/// Changes the shared page, unless the server was killed.
fn write_page(write: impl FnOnce(&mut Page)) {
    world(|world| {
        if !world.is_killed {
            write(&mut world.page);
        }
    });
}

/// Ends the simulated server as the kernel would: marks the owner word of the shared page, and later drops the leases.
pub(super) fn kill() {
    world(|world| {
        world.page.is_ownerless = true;
        world.is_killed = true;
    });
    pause();
    world(|world| world.files.iter_mut().for_each(|file| file.is_leased = false));
}

/// Bakes another file and serves it.
pub(super) fn swap() {
    let number = world(|world| {
        let baked = 1 + world.files.len() as u8;
        let (bytes, writer, hides_writes) = ([baked; LEN_BYTES], Writer::None, world.random_below(2) == 0);
        world.files.push(SimulatedFile { baked, bytes, modified: 0, hides_writes, is_leased: false, writer });
        world.files.len() - 1
    });
    let (lease, blocks, trusted_modified) =
        (Lease::unregistered(Descriptor(number)), Blocks::of_records(1).unwrap(), Cell::new(0));
    let generation = Rc::new(Generation { number, lease, blocks, trusted_modified });
    generation.trusted_modified.set(generation.file().modified());
    generation.take_lease();
    if !with_lease_locked(|| generation.lease.is_held()) {
        return;
    }
    // Mirrors `Board::serve`.
    write_page(|page| page.until_ns = 0);
    pause();
    write_page(|page| *page = Page { generation: number, count: page.count + 1, ..Page::default() });
    pause();
    with_lease_locked(|| generation.lease.report(Box::new(move |state| set_lease(number, state))));
    let old = SERVER.with_borrow_mut(|generations| std::mem::replace(generations, vec![generation]));
    // Releases the lease, unless a batch still reads the generation.
    with_lease_locked(|| drop(old));
}

/// Mirrors `Board::set_lease`.
fn set_lease(generation: usize, lease: LeaseState) {
    if world(|world| world.page.generation != generation) {
        return;
    }
    pause();
    write_page(|page| page.until_ns = if let LeaseState::TrustedUntil(until_ns) = lease { until_ns } else { 0 });
    pause();
    write_page(|page| {
        let is_leased = match lease {
            LeaseState::TrustedUntil(_) => true,
            LeaseState::Lost => false,
            LeaseState::Released => page.is_leased,
        };
        page.count += u64::from(page.is_leased != is_leased);
        (page.is_leased, page.is_leasable) = (is_leased, true);
    });
    pause();
}
