//! Tables whose old documents were deleted, for example by a lifecycle rule of a bucket.

use serde_json::json;

use super::stores::Store;
use crate::helpers::published::sealed;

fn object(folder: &str, number: u64) -> String {
    format!("{folder}/{number:020}.json")
}

fn published_number(store: &Store) -> u64 {
    store.zkv(&["publish", "table.db", "--to", "URL", "--json"]).json()["number"].as_u64().unwrap()
}

pub(crate) fn numbers_of_deleted_documents_are_not_used_again(store: &Store) {
    for generation in 1..=5 {
        store.publish(generation);
    }
    for pin in ["1", "2", "5"] {
        store.zkv(&["pin", "URL", pin]).succeeds();
    }
    for deleted in 1..=4 {
        store.remove(&object("manifests", deleted));
        if deleted <= 2 {
            store.remove(&object("pins", deleted));
        }
        let listed = store.zkv(&["generations", "URL", "--json"]).json();
        let numbers: Vec<_> =
            listed["generations"].as_array().unwrap().iter().map(|listed| &listed["number"]).collect();
        assert_eq!(numbers, (deleted + 1..=5).collect::<Vec<u64>>(), "{listed}");
        assert_eq!(listed["pin"]["number"], json!(3));
        assert_eq!(store.zkv(&["pull", "URL", "-o", "copy.db", "--json"]).json()["number"], json!(5));
    }
    let ran = store.zkv(&["publish", "table.db", "--to", "URL", "--json", "--parent", "5"]);
    assert!(ran.err.contains("warning: ") && ran.err.contains("lifecycle"), "{ran:?}");
    let manifest = ran.json();
    assert_eq!((&manifest["number"], &manifest["parent"]), (&json!(6), &json!(5)));
    assert_eq!(store.zkv(&["unpin", "URL"]).succeeds(), "pin 4: all nodes serve the newest generation\n");
    assert_eq!(store.zkv(&["pull", "URL", "-o", "copy.db", "--json"]).json()["number"], json!(6));
    // What is missing needs no files, and what exists keeps them.
    store.zkv(&["gc", "URL", "--keep", "10", "--older-than", "0s", "--delete"]).succeeds();
    assert_eq!(store.objects("data").len(), 2);
}

/// Nothing is left of a series but what refers to its numbers.
pub(crate) fn numbers_that_nodes_or_pins_name_are_not_used_again(store: &Store) {
    store.publish(1);
    store.remove(&object("manifests", 1));
    let status = |node: &str, newest: u64, pin: u64, topology: u64| {
        let status = json!({"node": node, "serving": newest, "digest": "", "prepared": 0, "newest": newest, "pin": pin,
            "lag_s": 0, "error": "", "failed": 0, "updated": "", "tool": "", "topology": topology});
        store.write(&format!("status/{node}.json"), sealed(&status.to_string()));
    };
    status("a", 7, 3, 4);
    // Nodes must not be able to use up the numbers of a table.
    status("b", (1 << 53) - 1, (1 << 53) - 1, (1 << 53) - 1);
    let ran = store.zkv(&["publish", "table.db", "--to", "URL", "--json", "--parent", "0"]);
    ran.fails(2, &["generation 7 is the newest one, expected 0", "warning: ", "status/b.json names 9007199254740991"]);
    assert_eq!(published_number(store), 8);
    assert_eq!(store.zkv(&["pin", "URL", "8", "--json"]).json()["number"], json!(4));
    let node = json!({"id": "a", "host": "h", "port": 1, "role": "primary", "slots": ["0-16383"]});
    let topology = json!({"format": 1, "number": 1, "nodes": [node]});
    std::fs::write(store.path("topology.json"), topology.to_string()).unwrap();
    let apply = store.zkv(&["topology", "apply", "topology.json", "--to", "URL"]);
    apply.fails(2, &["the topology has number 1, expected 5"]);
    // A pin also names a generation, and a decision a pin.
    store.remove("status/a.json");
    store.remove("status/b.json");
    store.remove(&object("manifests", 8));
    assert_eq!(published_number(store), 9);
    store.write(&object("decisions", 6), sealed("\"abort\""));
    assert_eq!(store.zkv(&["unpin", "URL", "--json"]).json()["number"], json!(7));
}

/// A damaged manifest does not hide the other generations, and does not stop the table.
pub(crate) fn a_damaged_manifest_hides_no_other_generation(store: &Store) {
    for generation in 1..=3 {
        store.publish(generation);
    }
    store.write(&object("manifests", 2), b"{}".to_vec());
    let listed = store.zkv(&["generations", "URL", "--json"]);
    assert!(listed.err.contains("manifests/00000000000000000002.json: is not a document"), "{listed:?}");
    let numbers = |listed: &serde_json::Value| -> Vec<u64> {
        let generations = listed["generations"].as_array().unwrap().iter();
        generations.map(|generation| generation["number"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&listed.json()), [1, 3]);
    store.zkv(&["pin", "URL", "1"]).succeeds();
    let gc = |keep: &str| store.zkv(&["gc", "URL", "--keep", keep, "--older-than", "0s"]);
    gc("2").fails(2, &["manifests/00000000000000000002.json", "nothing is deleted: retain at most 1 generation"]);
    gc("1").succeeds();
    store.remove(&object("manifests", 2));
    gc("2").succeeds();
    // A pin to a generation without a manifest is kept from deleting its files.
    store.remove(&object("manifests", 1));
    gc("2").fails(2, &["manifests/00000000000000000001.json", "is missing", "nothing is deleted"]);
}

/// A store returns the right document at the wrong name.
pub(crate) fn documents_with_another_number_are_rejected(store: &Store) {
    store.publish(1);
    store.zkv(&["pin", "URL", "1"]).succeeds();
    store.write(&object("pins", 2), store.read(&object("pins", 1)));
    let problem = "pins/00000000000000000002.json: is pin 1, expected 2: create another pin";
    let listed = store.zkv(&["generations", "URL"]);
    assert!(listed.err.contains(&format!("{problem}: until then, nodes keep what they serve")), "{listed:?}");
    assert!(listed.succeeds().contains("generation  published"));
    let listed = store.zkv(&["generations", "URL", "--json"]).json();
    assert!(listed["pin"].is_null() && listed["pin_error"].as_str().unwrap().contains(problem), "{listed}");
    let gc = || store.zkv(&["gc", "URL", "--keep", "1", "--older-than", "0s"]);
    gc().fails(2, &["pins/00000000000000000002.json: is pin 1", "nothing is deleted: create another pin"]);
    // A pin of one node, and any other pin, leads out.
    let pin = store.zkv(&["pin", "URL", "1", "--node", "a"]).succeeds();
    assert_eq!(pin, "pin 3: nodes a serve generation 1, and other nodes serve the newest generation\n");
    gc().succeeds();
    assert_eq!(store.zkv(&["generations", "URL", "--json"]).json()["pin"]["number"], 3);
    store.write(&object("manifests", 2), store.read(&object("manifests", 1)));
    store.zkv(&["pull", "URL", "2", "-o", "copy.db"]).fails(2, &["is the manifest of generation 1, expected 2"]);
}
