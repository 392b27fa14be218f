//! A file system that stores times in whole seconds, so two writes within one second leave equal modification times.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use zero_kv::Lookup;
use zero_kv::client::ClientError;
use zero_kv::{LookupError, MappedStore};

use super::mounted::Mounted;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::Missing;

const SHAPE: Shape = Shape { rows: 500, len_max_bytes: 300 };
const KEY: u64 = 7;

/// Writes the table at the beginning of a second, so that most of the second is left for another write. The kernel's
/// clock is up to 10 ms late, so the table would have the time of the second before if it were written at once.
fn write_early_in_a_second(scene: &Scene, table: &Path) {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let until_next = Duration::from_secs(1) - Duration::from_nanos(since_epoch.subsec_nanos().into());
    thread::sleep(until_next + Duration::from_millis(20));
    fs::copy(scene.db(), table).unwrap();
    assert_eq!(fs::metadata(table).unwrap().mtime_nsec(), 0);
}

/// Overwrites a value in place.
fn overwrite(table: &Path, value: &[u8]) {
    let bytes = fs::read(table).unwrap();
    let value_at = bytes.windows(value.len()).position(|window| window == value).unwrap() as u64;
    let file = File::options().write(true).open(table).unwrap();
    file.write_all_at(&vec![b'#'; value.len()], value_at).unwrap();
}

pub(crate) fn two_writes_within_one_second_are_distinguished_where_times_are_whole_seconds() -> Result<(), Missing> {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let script = "truncate -s 8M ext2.img && mkfs.ext2 -q -I 128 ext2.img && mkdir disk && mount -o loop ext2.img disk";
    let mounted = Mounted::by_script(&scene, "ext2", script)?;
    let table = mounted.path(&scene.path("disk/storage.db"));
    let value = SHAPE.value(1, KEY).unwrap();

    write_early_in_a_second(&scene, &table);
    let mapped = MappedStore::open(&table).unwrap();
    assert_eq!(mapped.get(KEY).unwrap().as_ref(), Some(&value));
    overwrite(&table, &value);
    assert_eq!(mapped.get(KEY), Err(LookupError::Damaged));

    write_early_in_a_second(&scene, &table);
    let served = scene.run(scene.command_for(&table, &["--no-lease"]));
    let mut client = served.client();
    assert_eq!(client.get(KEY).unwrap().as_ref(), Some(&value));
    overwrite(&table, &value);
    let overwritten = client.get(KEY);
    assert!(matches!(overwritten, Err(ClientError::Server { .. })), "{overwritten:?}");
    Ok(())
}
