//! LMDB. Rows have integer keys, and are appended in key order. The build syncs the file only at its end. The file is
//! opened read-only, without thread-local readers and read-ahead. One read transaction serves all lookups.

use std::path::Path;

use anyhow::Result;
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, RoTxn, WithoutTls};

use super::{Engine, Opened, Table};
use crate::rows::{Rows, Sink};

/// Number of rows per write transaction.
const TRANSACTION_ROWS: u64 = 1_000_000;

type Key = U64<NativeEndian>;

pub(super) fn engine() -> Engine {
    let version = heed::lmdb_version();
    Engine {
        name: "LMDB",
        version: format!("{}.{}.{}", version.major, version.minor, version.patch),
        ordered: true,
        batched: false,
        batched_floors: false,
        small: false,
        build: Some(build),
        open,
    }
}

struct Lmdb {
    transaction: RoTxn<'static, WithoutTls>,
    table: Database<Key, Bytes, IntegerComparator>,
}

fn environment(rows: &Rows, folder: &Path, flags: EnvFlags) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    // The map size uses address space, not memory. It is twice the maximum length of the rows.
    let map_len_bytes = (rows.count as usize * (rows.value_len_bytes + 64) * 2).next_multiple_of(1 << 30);
    options.map_size(map_len_bytes);
    // SAFETY: NO_SYNC is set only while the file is built. A crash may then damage the file, but a damaged file is
    // never opened, because each run builds new files. READ_ONLY and NO_READ_AHEAD, which are set for lookups, have no
    // safety conditions.
    unsafe { options.flags(flags) };
    // SAFETY: no other process uses the folder, and only LMDB accesses its file.
    Ok(unsafe { options.open(folder) }?)
}

fn build(rows: &Rows, folder: &Path) -> Result<()> {
    let environment = environment(rows, folder, EnvFlags::NO_SYNC)?;
    let mut transaction = environment.write_txn()?;
    let options = environment.database_options().types::<Key, Bytes>().key_comparator::<IntegerComparator>();
    let table = options.create(&mut transaction)?;
    transaction.commit()?;
    for piece in rows.pieces(TRANSACTION_ROWS) {
        let mut transaction = environment.write_txn()?;
        rows.each_of(piece, |key, value| Ok(table.put_with_flags(&mut transaction, PutFlags::APPEND, &key, value)?))?;
        transaction.commit()?;
    }
    Ok(environment.force_sync()?)
}

fn open(rows: &Rows, folder: &Path) -> Result<Box<dyn Opened>> {
    let environment = environment(rows, folder, EnvFlags::READ_ONLY | EnvFlags::NO_READ_AHEAD)?;
    let transaction = environment.clone().static_read_txn()?;
    let options = environment.database_options().types::<Key, Bytes>().key_comparator::<IntegerComparator>();
    let table = options.open(&transaction)?.ok_or_else(|| anyhow::anyhow!("no table in the file"))?;
    Ok(Box::new(Lmdb { transaction, table }))
}

impl Table for Lmdb {
    #[inline]
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        sink.accept(self.table.get(&self.transaction, &key)?);
        Ok(())
    }

    #[inline]
    fn floor(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        sink.accept(self.table.get_lower_than_or_equal_to(&self.transaction, &key)?.map(|(_, value)| value));
        Ok(())
    }

    fn scan(&mut self, start: u64, rows: u64, sink: &mut impl Sink) -> Result<()> {
        for row in self.table.range(&self.transaction, &(start..))?.take(rows as usize) {
            sink.found(row?.1);
        }
        Ok(())
    }
}
