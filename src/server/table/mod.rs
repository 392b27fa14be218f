//! The served table: its generations, the fields of its rows as Redis hashes, and the leases of its files.

pub(super) mod fields;
pub(super) mod generations;
pub(super) mod leases;
pub(super) mod published;
