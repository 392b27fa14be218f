//! `zkv verify`: a file is intact, or the error names the damage.

use std::os::unix::fs::FileExt;

use super::*;

fn verify(db: &Path) -> Output {
    zkv().arg("verify").arg(db).output().unwrap()
}

#[test]
fn an_intact_file_is_reported_with_rows_bytes_and_rate() {
    let (_folder, db) = baked();
    let output = verify(&db);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    let len_bytes = fs::metadata(&db).unwrap().len();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.starts_with(&format!("{}: intact: 4 rows, {len_bytes} bytes in ", db.display())), "{line}");
    assert!(line.ends_with(" GB/s\n") && line.lines().count() == 1, "{line}");
}

#[test]
fn every_damaged_byte_is_detected_with_exit_status_1() {
    let (_folder, db) = baked();
    let whole = fs::read(&db).unwrap();
    let file = fs::File::options().write(true).open(&db).unwrap();
    // Damages every seventh byte, so that every field and section is covered.
    for at in (0..whole.len()).step_by(7) {
        file.write_all_at(&[whole[at] ^ 0x10], at as u64).unwrap();
        assert_damaged(&verify(&db), "table.db: ");
        file.write_all_at(&whole[at..=at], at as u64).unwrap();
    }
    assert_eq!(verify(&db).status.code(), Some(0));
}

#[test]
fn the_error_names_the_section_and_the_block() {
    let (_folder, db) = baked();
    let mut bytes = fs::read(&db).unwrap();
    let at = bytes.windows(5).position(|window| window == b"seven").unwrap();
    bytes[at] ^= 1;
    fs::write(&db, &bytes).unwrap();
    assert_damaged(&verify(&db), "block 0 of the records");
    fs::write(&db, &bytes[..bytes.len() - 1]).unwrap();
    assert_damaged(&verify(&db), "truncated");
    fs::write(&db, "7,seven\n").unwrap();
    assert_damaged(&verify(&db), "not a baked file");
}

#[test]
fn an_unreadable_file_has_exit_status_2() {
    let folder = tempfile::tempdir().unwrap();
    assert_error(&verify(&folder.path().join("none.db")), &["none.db: ", "No such file"]);
    assert_error(&verify(folder.path()), &["not a regular file"]);
}
