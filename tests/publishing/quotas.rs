//! Quotas of a table.

use serde_json::{Value, json};

use super::stores::Store;
use crate::helpers::published::sealed;

pub(crate) fn a_generation_beyond_a_quota_is_rejected(store: &Store) {
    assert_eq!(store.zkv(&["policy", "URL"]).succeeds(), "no policy: generations have no quotas\n");
    assert_eq!(store.zkv(&["policy", "URL", "--json"]).json(), Value::Null);
    store.bake("table.db", "1,one\n2,two\n3,three\n");
    let bytes = std::fs::metadata(store.path("table.db")).unwrap().len();
    let publish = || store.zkv(&["publish", "table.db", "--to", "URL"]);
    let policy = |options: &[&str]| store.zkv(&[&["policy", "URL"], options].concat()).succeeds();
    assert_eq!(policy(&["--max-rows", "3"]), "policy 1: a generation has at most 3 rows and any number of bytes\n");
    publish().succeeds();
    let (less, exact) = ((bytes - 1).to_string(), bytes.to_string());
    let text = format!("policy 2: a generation has at most 3 rows and at most {less} bytes\n");
    assert_eq!(policy(&["--max-bytes", &less]), text);
    assert_eq!(policy(&[]), text);
    let before = store.objects("data");
    publish().fails(2, &[&format!("exceeds a quota of policy 2: it has {bytes} bytes, expected at most {less}")]);
    assert_eq!(store.objects("data"), before, "nothing is uploaded before the check");
    policy(&["--max-bytes", &exact, "--max-rows", "2"]);
    publish().fails(2, &["policy 3: it has 3 rows, expected at most 2"]);
    // A copy is checked, too.
    let other = format!("file://{}/other/users", store.files.path().display());
    store.zkv(&["publish", "table.db", "--to", &other]).succeeds();
    store.zkv(&["copy", &other, "URL"]).fails(2, &["policy 3: it has 3 rows, expected at most 2"]);
    policy(&["--max-rows", "none"]);
    publish().succeeds();
    let report = store.zkv(&["policy", "URL", "--json"]).json();
    assert_eq!(
        (&report["number"], &report["max_rows"], &report["max_bytes"]),
        (&json!(4), &json!(null), &json!(bytes))
    );
    // A policy that cannot be read allows nothing.
    for (body, problem) in
        [(json!({"number": 4, "created": ""}), "is policy 4, expected 5"), (json!([]), "is malformed")]
    {
        store.write("policies/00000000000000000005.json", sealed(&body.to_string()));
        publish().fails(2, &[problem]);
    }
    store.zkv(&["policy", "URL", "--max-rows", "10"]).fails(2, &["is malformed"]);
    // The next policy leads out of this state.
    policy(&["--max-rows", "10", "--max-bytes", "none"]);
    publish().succeeds();
}
