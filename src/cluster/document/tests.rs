use super::*;

const VALID: &str = r#"{"format": 1, "number": 7, "nodes": [
    {"id": "a", "host": "10.0.0.1", "port": 6380, "role": "primary", "slots": ["0-99", "200-16383"], "zone": "east"},
    {"id": "a2", "host": "10.0.0.1", "port": 6381, "role": "replica", "primary": "a", "health": "loading"},
    {"id": "b", "host": "::1", "port": 6380, "role": "primary", "slots": ["100-199"], "added_later": {"x": 1}},
    {"id": "new.node_1-x", "host": "host.example", "port": 1, "role": "primary", "health": "hidden"}
]}"#;

/// Returns the error for the valid document with a text replaced.
#[track_caller]
fn error_with(from: &str, to: &str) -> String {
    let changed = VALID.replacen(from, to, 1);
    assert_ne!(changed, VALID, "{from} occurs in the document");
    Topology::parse(changed.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_valid_document_has_the_slots_that_it_states() {
    let topology = Topology::parse(VALID.as_bytes()).unwrap();
    assert_eq!(topology.slots_of("a").to_string(), "0-99,200-16383");
    assert_eq!(topology.slots_of("a2"), topology.slots_of("a"));
    assert_eq!(topology.slots_of("b").to_string(), "100-199");
    assert_eq!((topology.slots_of("new.node_1-x"), topology.slots_of("c")), (SlotSet::NONE, SlotSet::NONE));
    let owners = topology.owners().unwrap();
    assert_eq!((owners[0], owners[99], owners[100], owners[199], owners[200], owners[16383]), (0, 0, 2, 2, 0, 0));
    assert!(topology.replicas_of("a").map(|node| node.id.as_str()).eq(["a2"]));
    assert_eq!((topology.position("b"), topology.position("c")), (Some(2), None));
}

#[test]
fn a_document_that_is_written_and_read_is_equal() {
    let topology = Topology::parse(VALID.as_bytes()).unwrap();
    assert_eq!(Topology::parse(topology.to_json().as_bytes()), Ok(topology));
}

#[test]
fn errors_state_the_value_found_and_the_value_expected() {
    for (from, to, expected) in [
        (r#""format": 1"#, r#""format": 2, "more": []"#, "has format 2, expected at most 1: update"),
        (r#""number": 7"#, r#""number": 0"#, "number 0, expected at least 1"),
        (r#""number": 7"#, r#""number": -1"#, "malformed: invalid value: integer `-1`"),
        (r#""number": 7,"#, "", "malformed: missing field `number`"),
        (r#""id": "b""#, r#""id": "a""#, r#"node "a": another node has this id, expected unique"#),
        (r#""id": "b""#, r#""id": "b c""#, r#"node "b c": the id is "b c", expected at most 100 letters"#),
        (r#""id": "b""#, r#""id": "b,c""#, "expected at most 100 letters"),
        (r#""id": "b""#, r#""id": ".b""#, "not beginning with `.`"),
        (r#""id": "b""#, r#""id": """#, r#"node "": the id is """#),
        (r#""host": "::1""#, r#""host": "[::1]:5""#, "without brackets and port"),
        (r#""host": "::1""#, r#""host": "a b""#, r#"the host is "a b", expected a host name"#),
        (r#""host": "::1""#, r#""host": "10.0.0.1""#, r#"node "a" has the same address 10.0.0.1:6380"#),
        (r#""port": 1,"#, r#""port": 0,"#, "the port is 0, expected 1 to 65535"),
        (r#""port": 1,"#, r#""port": 65536,"#, "malformed: invalid value: integer `65536`"),
        (r#""100-199""#, r#""100-198""#, "slots 199-199 have no primary, expected exactly one"),
        (r#""100-199""#, r#""100-199", "150-150""#, r#"slot 150 has the primaries "b" and "b""#),
        (r#""100-199""#, r#""99-199""#, r#"slot 99 has the primaries "a" and "b", expected exactly one"#),
        (r#""100-199""#, r#""100-16384""#, "expected two slots from 0 to 16383, such as 0-8191"),
        (r#""100-199""#, r#""199-100""#, "expected two slots from 0 to 16383"),
        (r#""replica", "primary": "a""#, r#""replica""#, "a replica has no field primary"),
        (r#""replica", "primary": "a""#, r#""replica", "primary": "x""#, r#"its primary is "x", expected the id of a"#),
        (r#""replica", "primary": "a""#, r#""replica", "primary": "a2""#, "which is a replica: name a primary"),
        (r#""primary": "a""#, r#""primary": "a", "slots": ["0-9"]"#, r#"the slots are 0-9, expected those of its"#),
        (r#""zone": "east""#, r#""primary": "b""#, "the role is primary, but its primary is"),
        (r#""zone": "east""#, r#""health": "hidden""#, "a primary with slots is hidden"),
        ("loading", "lost", "unknown variant `lost`"),
        ("]}", "]", "malformed: EOF"),
    ] {
        let error = error_with(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    assert!(
        Topology::parse(br#"{"format": 1, "number": 1, "nodes": []}"#).unwrap_err().to_string().contains("0 nodes")
    );
    assert!(matches!(Topology::parse(&vec![b' '; LEN_MAX_BYTES + 1]), Err(TopologyError::Long { .. })));
}

#[test]
fn damaged_documents_cause_no_panic() {
    for at in 0..VALID.len() {
        let _ = Topology::parse(&VALID.as_bytes()[..at]);
        for byte in [b'"', b'0', b'-', b'{', 0xFF] {
            let mut damaged = VALID.as_bytes().to_vec();
            damaged[at] = byte;
            if let Ok(topology) = Topology::parse(&damaged) {
                assert_eq!(topology.check(), Ok(()));
            }
        }
    }
}
