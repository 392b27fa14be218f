//! Tests of mappings and copies.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::pages::{huge_len_bytes, touch};
use super::*;
use crate::machine_memory::page_len_bytes;
use crate::store::pace::Pace;

fn file_of(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn resident_len_bytes(map: &Map) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mapping = format!("{:x}-", map.memory().as_ptr() as usize);
    let resident = smaps.split(&mapping).nth(1).unwrap().lines().find(|line| line.starts_with("Rss:")).unwrap();
    resident.split_ascii_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn some_bytes(len_bytes: usize) -> Vec<u8> {
    (0..len_bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn a_copy_keeps_its_bytes_when_the_file_is_truncated() {
    for len_bytes in [0, 1, 4096, PART_LEN_BYTES, 2 * PART_LEN_BYTES + 1, 5 * PART_LEN_BYTES - 1] {
        let expected = some_bytes(len_bytes);
        let file = file_of(&expected);
        let map = Map::map_file(&file).unwrap();
        assert!(map.bytes() == expected, "{len_bytes} bytes");
        let pace = Pace::default();
        let copies = [Map::copy_of(&file, &pace).unwrap(), Map::compact_copy_of(&file, &pace).unwrap()];
        drop(map);
        file.set_len(0).unwrap();
        for moved in copies.map(Box::new) {
            assert!(moved.bytes() == expected, "{len_bytes} bytes");
            assert!(moved.watched().is_none());
        }
    }
}

#[test]
fn no_process_can_change_sealed_memory() {
    for len_bytes in [1, 4096, PART_LEN_BYTES + 5] {
        let expected = some_bytes(len_bytes);
        let file = file_of(&expected);
        let map = Map::sealed_copy_of(&file, &Pace::default()).unwrap();
        file.set_len(0).unwrap();
        assert!(map.bytes() == expected && map.watched().is_none());
        // The rest of the loop opens the sealed file for writing, as a process that received the file might.
        let path = format!("/proc/self/fd/{}", map.file().unwrap().as_raw_fd());
        let file = File::options().write(true).open(path).unwrap();
        let refused = [file.set_len(0), file.set_len(1 << 30), file.write_at(b"x", 0).map(drop)];
        assert_eq!(refused.map(|result| result.unwrap_err().kind()), [io::ErrorKind::PermissionDenied; 3]);
        assert!(map.bytes() == expected);
    }
}

#[test]
fn resident_bytes_are_reported() {
    let file = file_of(&some_bytes(PART_LEN_BYTES + 5));
    let map = Map::map_file(&file).unwrap();
    map.warm(&Pace::default()).unwrap();
    assert_eq!(map.resident_len_bytes().unwrap(), (PART_LEN_BYTES + 5) as u64);
}

#[test]
fn truncation_is_detected_as_a_change() {
    crate::store::guard::survive_bus_errors().unwrap();
    let file = file_of(&some_bytes(100_000));
    let map = Map::map_file(&file).unwrap();
    let watched = map.watched().unwrap();
    assert!(watched.is_unchanged());
    file.set_len(0).unwrap();
    assert!(!watched.is_unchanged());
    watched.trust(&watched.stamp().unwrap(), true);
    assert!(watched.is_unchanged());
    assert_eq!((map.bytes()[50_000], watched.faults()), (0, 1));
    assert!(!watched.is_unchanged(), "a page could not be read");
}

#[test]
fn every_page_of_a_warmed_map_is_resident() {
    let bytes = some_bytes(3 * PART_LEN_BYTES + 5);
    let file = file_of(&bytes);
    let map = Map::map_file(&file).unwrap();
    assert_eq!(resident_len_bytes(&map), 0);
    map.warm(&Pace::default()).unwrap();
    assert_eq!(resident_len_bytes(&map), bytes.len().next_multiple_of(page_len_bytes()));

    let map = Map::map_file(&file).unwrap();
    touch(map.bytes());
    assert_eq!(resident_len_bytes(&map), bytes.len().next_multiple_of(page_len_bytes()));
}

#[test]
#[cfg(feature = "bake")]
fn released_pages_are_not_resident_and_keep_their_bytes() {
    let expected = some_bytes(PART_LEN_BYTES + 5);
    let file = file_of(&expected);
    for map in [Map::map_file(&file).unwrap(), Map::copy_of(&file, &Pace::default()).unwrap()] {
        assert!(map.bytes() == expected);
        map.release(0..PART_LEN_BYTES / 2);
        if map.watched().is_some() {
            assert!(resident_len_bytes(&map) <= PART_LEN_BYTES / 2 + page_len_bytes());
        }
        for range in [0..0, 0..expected.len(), 7..expected.len(), 0..expected.len() + 1, 1..usize::MAX] {
            map.release(range);
        }
        assert!(map.bytes() == expected);
    }
}

#[test]
fn only_huge_pages_of_the_mapping_count() {
    let smaps = "\
        7f0000000000-7f0000400000 rw-p 00000000 00:00 0\nSize: 4096 kB\nAnonHugePages:      2048 kB\n\
        7f0000400000-7f0000a00000 r--p 00000000 00:00 0 [anon: x]\nSize: 6144 kB\nAnonHugePages:      4096 kB\n\
        ShmemPmdMapped:        0 kB\nFilePmdMapped:        2048 kB\nVmFlags: rd mr mw me hg\n\
        7f0000a00000-7f0000b00000 r--p 00000000 fe:00 12 /tmp/a: b\nAnonHugePages:         0 kB\n";
    assert_eq!(huge_len_bytes(smaps, 0x7f00_0000_0000), 2 << 20);
    assert_eq!(huge_len_bytes(smaps, 0x7f00_0040_0000), 6 << 20);
    assert_eq!(huge_len_bytes(smaps, 0x7f00_00af_ffff), 0);
    assert_eq!(huge_len_bytes(smaps, 0x7f00_00b0_0000), 0);
    assert_eq!(huge_len_bytes("", 0x7f00_0000_0000), 0);
}
