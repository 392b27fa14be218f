//! `zkv slot`: the slots of keys.

use super::*;

#[test]
fn each_line_is_the_slot_of_a_key() {
    // The replies of CLUSTER KEYSLOT in redis-server 7.0.15.
    let output = zkv().args(["slot", "foo", "somekey", "foo{hash_tag}", "42"]).output().unwrap();
    assert_answer(&output, 0, b"12182\n11058\n2515\n8000\n");
    let mut command = zkv();
    command.args(["slot", "-"]);
    assert_answer(&output_with(command, b"foo\n42\n"), 0, b"12182\n8000\n");
}

#[test]
fn a_command_without_a_table_rejects_options_for_tables() {
    for (args, problem) in [
        (&["slot"][..], "<KEY>"),
        (&["slot", "42", "--db", "storage.db"], "--db cannot be used with this command, which reads no table"),
        (&["slot", "42", "--direct"], "--direct cannot be used with this command"),
    ] {
        assert_usage_error(&zkv().args(args).output().unwrap(), problem);
    }
    assert_error(&zkv().args(["slot", ""]).output().unwrap(), &["a key of 0 bytes, where 1 to 65535 are allowed"]);
}
