//! `zkv topology`.

use std::process::Command;

use zero_kv::cluster::Topology;
use zero_kv::publish::Publication;

/// Runs `zkv topology` with these words. Returns its exit status, its output, and its errors.
#[track_caller]
fn topology(words: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
    let output = command.arg("topology").args(words.split(' ')).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn success(words: &str) -> (String, String) {
    let (status, output, errors) = topology(words);
    assert_eq!(status, Some(0), "{words}: {errors}");
    (output, errors)
}

#[track_caller]
fn failure(words: &str) -> String {
    let (status, _, errors) = topology(words);
    assert_eq!(status, Some(2), "{words}");
    errors
}

pub(crate) fn topologies_are_planned_checked_applied_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (next, file) = (path("next.json"), path("topology.json"));
    let url = format!("file://{}/table", folder.path().display());
    Publication::create(&url).unwrap();
    for to in [&file, &url] {
        let (json, summary) = success("plan --nodes a=10.0.0.1:6380@east,b=[::1]:6380");
        assert_eq!(summary, "zkv: topology 1: 2 primaries, 0 replicas: the first topology\n");
        std::fs::write(&next, &json).unwrap();
        let (checked, _) = success(&format!("check {next}"));
        assert_eq!(checked, format!("{next}: topology 1 is valid: 2 primaries, 0 replicas\n"));
        assert_eq!(success(&format!("apply {next} --to {to}")).0, "topology 1: 2 primaries, 0 replicas\n");
        assert_eq!(success(&format!("show {to} --json")).0, json);
        let (shown, _) = success(&format!("show {to}"));
        assert_eq!(
            shown,
            "topology 1\n\
             node  address        role     health  zone  slots\n\
             a     10.0.0.1:6380  primary  online  east  0-8191\n\
             b     ::1:6380       primary  online  -     8192-16383\n"
        );
        if *to == url {
            // The outcome of the first command may have been lost.
            success(&format!("apply {next} --to {to}"));
            std::fs::write(&next, json.replace("10.0.0.1", "10.0.0.2")).unwrap();
        }
        let error = failure(&format!("apply {next} --to {to}"));
        assert!(error.contains("has number 1, expected"), "{error}");
        let nodes = "a=10.0.0.1:6380,b=[::1]:6380,c=h:1,d=h:2,e=h:3,f=h:4";
        let (json, summary) = success(&format!("plan --nodes {nodes} --replicas 1 --from {to}"));
        assert_eq!(summary, "zkv: topology 2: 3 primaries, 3 replicas: 5461 of 16384 slots move to another primary\n");
        std::fs::write(&next, &json).unwrap();
        success(&format!("apply {next} --to {to}"));
        assert!(success(&format!("show {to}")).0.contains("replica of "));
    }
    let other = format!("file://{}/other", folder.path().display());
    Publication::create(&other).unwrap();
    assert_eq!(topology(&format!("show {other}")).0, Some(1));
    std::fs::write(&next, "{}").unwrap();
    assert!(failure(&format!("check {next}")).contains("malformed: missing field `format`"));
    assert!(failure(&format!("check {}", path("missing"))).contains("missing: No such file"));
    assert!(failure("plan --nodes a=h:1,a=h:2").contains("another node has this id"));
    assert!(failure("plan --nodes a=h:1 --replicas 1").contains("1 node given, expected at least 2"));
    assert!(failure("plan --nodes a").contains("expected ID=HOST:PORT"));
}

pub(crate) fn a_planned_cluster_has_the_slots_of_the_files_of_a_sharded_bake() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "1,one\n2,two\n").unwrap();
    for count in [1, 3, 5, 7, 16, 100] {
        let shards = folder.path().join(format!("shards-{count}"));
        let mut baker = Command::new(env!("CARGO_BIN_EXE_baker"));
        baker.arg(&csv).args(["--shards", &count.to_string(), "-o"]).arg(&shards);
        let baked = baker.output().unwrap();
        assert!(baked.status.success(), "{}", String::from_utf8_lossy(&baked.stderr));
        let nodes: Vec<String> = (0..count).map(|node| format!("n{node}=10.0.0.{node}:6380")).collect();
        let (json, _) = success(&format!("plan --nodes {}", nodes.join(",")));
        for node in Topology::parse(json.as_bytes()).unwrap().nodes {
            let [slots] = &node.slots[..] else { panic!("{count} nodes: {node:?}") };
            let file = shards.join(format!("{slots}.db"));
            assert!(file.is_file(), "{count} nodes: {} has slots {slots}, but no file has this name", node.id);
        }
    }
}
