//! Publications and downloads that a signal interrupts.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::proxy;
use super::stores::{Ran, Store};
use crate::helpers::full_pipe::{full_pipe, wait_until_handled};
use crate::helpers::random::Random;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

/// Bakes a file that is uploaded in several parts. Returns its length in bytes.
pub(crate) fn bake_large(store: &Store) -> u64 {
    let mut random = Random(7);
    let line = |key: u64| format!("{key},{:016x}{}\n", random.next(), "v".repeat(10_000));
    store.bake("large.db", &(0..4000).map(line).collect::<String>());
    fs::metadata(store.path("large.db")).unwrap().len()
}

/// Starts a command, sends it a signal when a condition holds, and returns how it ended.
pub(crate) fn signal_when(mut command: Command, signal: Signal, condition: impl FnMut() -> bool) -> Ran {
    let child = command.spawn().unwrap();
    eventually("the command is in the middle", condition);
    kill_process(Pid::from_child(&child), signal).unwrap();
    Ran::new(child.wait_with_output().unwrap())
}

/// Interrupts a command like [`signal_when`], and asserts that it ended by the signal.
pub(crate) fn interrupt_when(command: Command, signal: Signal, condition: impl FnMut() -> bool) -> Ran {
    let ran = signal_when(command, signal, condition);
    assert_eq!(ran.output.status.signal(), Some(signal.as_raw()), "{ran:?}");
    ran
}

/// Returns the number of names in a folder and in all folders below it.
fn count_names(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| 1 + if entry.path().is_dir() { count_names(&entry.path()) } else { 0 }).sum()
}

pub(crate) fn the_first_signal_ends_a_publication_whose_errors_nobody_reads() {
    let store = Store::folder();
    bake_large(&store);
    let (reader, writer) = full_pipe();
    let mut command = store.zkv_command(&["publish", "large.db", "--to", "URL"]);
    let mut child = command.stderr(writer).spawn().unwrap();
    drop(command);
    wait_until_handled(&child, Signal::TERM);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    eventually("the publication ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    drop(reader);
}

pub(crate) fn an_interrupted_publication_is_complete_or_invisible(store: &Store) {
    bake_large(store);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // An upload to S3 has a state beside the file, and an upload to a folder begins with the folder of its job.
        let _ = fs::remove_file(store.path("large.db.upload.json"));
        let (before, names) = (store.objects("manifests"), count_names(store.files.path()));
        let is_uploading = || count_names(store.files.path()) > names;
        let ran = signal_when(store.zkv_command(&["publish", "large.db", "--to", "URL"]), signal, is_uploading);
        let after = store.objects("manifests");
        if after == before {
            assert_eq!((ran.output.status.signal(), &*ran.out), (Some(signal.as_raw()), ""), "{ran:?}");
            assert!(ran.err.contains("zkv: canceled: readers see no new generation: repeat the command"), "{ran:?}");
        } else {
            // The signal arrived after the commit.
            assert!(ran.out.contains(&format!(": generation {}: ", after.len())), "{ran:?}");
        }
    }
    store.zkv(&["publish", "large.db", "--to", "URL"]).succeeds();
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("large.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
}

/// Returns the number of parts of the upload that the state beside the file lists as complete, and the object's name.
fn upload_state(store: &Store) -> Option<(usize, String)> {
    let json = fs::read(store.path("large.db.upload.json")).ok()?;
    let state: Value = serde_json::from_slice(&json).ok()?;
    Some((state["parts"].as_object()?.len(), state["object"].as_str()?.to_owned()))
}

/// Returns a publication through a proxy that stalls while some parts are complete and others are not.
fn stalled(store: &Store) -> Command {
    // moto closes each connection after its response. Four requests read the policy and the preceding generation.
    let proxy = proxy::start(store.address(), 7);
    let mut command = store.zkv_command(&["publish", "large.db", "--to", "URL"]);
    command.env("AWS_ENDPOINT_URL", format!("http://{proxy}"));
    command
}

pub(crate) fn an_interrupted_upload_continues() -> Result<(), Missing> {
    let store = Store::s3()?;
    let len_bytes = bake_large(&store);
    let has_parts = || upload_state(&store).is_some_and(|(parts, _)| parts >= 1);
    let ran = interrupt_when(stalled(&store), Signal::INT, has_parts);
    assert!(ran.err.ends_with("repeat the command to continue the upload\n"), "{ran:?}");
    let (parts, object) = upload_state(&store).unwrap();
    assert_eq!((store.objects("data"), store.objects("manifests")), (vec![], vec![]), "readers see nothing");
    let published = store.zkv(&["publish", "large.db", "--to", "URL"]);
    // The line of the upload counts only the parts that were missing.
    let uploaded_mib = published.err.lines().find_map(|line| line.strip_prefix("upload")?.split_whitespace().next());
    let uploaded_mib: f64 = uploaded_mib.unwrap().parse().unwrap();
    let missing_mib = len_bytes as f64 / f64::from(1 << 20) - 8.0 * parts as f64;
    assert!((uploaded_mib - missing_mib).abs() < 0.2, "{uploaded_mib} MiB were uploaded, expected {missing_mib}");
    published.succeeds();
    assert_eq!(store.objects("data"), [object], "the interrupted upload was completed");
    assert!(!store.path("large.db.upload.json").exists());
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("large.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    Ok(())
}

/// The state is beside the file, in a folder that other users may be able to write to.
pub(crate) fn a_forged_state_of_an_upload_does_not_change_what_is_published() -> Result<(), Missing> {
    let store = Store::s3()?;
    store.publish(1);
    let object = store.objects("data").remove(0);
    let digest = store.zkv(&["inspect", "table.db", "--json"]).json()["digest"].clone();
    let at = |object: &str| json!(format!("{}/{object}", store.url()));
    let found = json!({"object_url": at(&object), "object": object, "digest": digest, "upload_id": "x", "parts": {},
        "bytes": fs::metadata(store.path("table.db")).unwrap().len(), "part_len_bytes": 8 << 20});
    let manifest = store.objects("manifests").remove(0);
    let forgeries = [
        json!({}),
        json!({"upload_id": "../../?acl&x=<y>\r\nz: 1"}),
        json!({"upload_id": "x".repeat(100_000)}),
        json!({"object": manifest, "object_url": at(&manifest)}),
        json!({"object": "data/../pins/1", "object_url": at("data/../pins/1")}),
        json!({"object": "", "object_url": at("")}),
        json!({"parts": {"0": "\"0\""}}),
        json!({"parts": {"0": "</ETag></Part><Part>"}}),
        json!({"parts": {"1": "\"0\"", "18446744073709551615": ""}}),
        json!({"parts": [0, 1]}),
        json!({"part_len_bytes": 0}),
        json!({"part_len_bytes": 1}),
        json!({"bytes": u64::MAX}),
    ];
    let state = store.path("table.db.upload.json");
    for (generation, forgery) in (2..).zip(&forgeries) {
        let mut forged = found.clone();
        forged.as_object_mut().unwrap().extend(forgery.as_object().unwrap().clone());
        fs::write(&state, serde_json::to_vec(&forged).unwrap()).unwrap();
        let published = store.zkv(&["publish", "table.db", "--to", "URL"]);
        assert!(published.out.contains(&format!(": generation {generation}: ")), "{forgery}: {published:?}");
        published.succeeds();
        assert_eq!(store.objects("manifests").len(), generation, "{forgery}");
    }
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("table.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    Ok(())
}

pub(crate) fn a_second_signal_ends_a_publication_at_once() -> Result<(), Missing> {
    let store = Store::s3()?;
    bake_large(&store);
    let child = stalled(&store).spawn().unwrap();
    eventually("a part is uploaded", || upload_state(&store).is_some_and(|(parts, _)| parts >= 1));
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.output.status.signal(), &*ran.out), (Some(Signal::INT.as_raw()), ""), "{ran:?}");
    assert_eq!(store.objects("manifests"), [""; 0]);
    Ok(())
}

pub(crate) fn an_interrupted_download_leaves_the_old_file_and_continues(store: &Store) {
    let len_bytes = bake_large(store);
    store.publish(1);
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    store.zkv(&["publish", "large.db", "--to", "URL"]).succeeds();
    let before = fs::read(store.path("copy.db")).unwrap();
    let pull = ["pull", "URL", "-o", "copy.db", "--bandwidth", "20MiB"];
    let is_partial = || {
        let mut names = fs::read_dir(store.files.path()).unwrap().map(|file| file.unwrap().file_name());
        names.any(|name| name.to_string_lossy().ends_with(".partial.json"))
    };
    let ran = interrupt_when(store.zkv_command(&pull), Signal::TERM, is_partial);
    assert!(ran.err.ends_with("copy.db: canceled: repeat the command to continue the download\n"), "{ran:?}");
    assert!(fs::read(store.path("copy.db")).unwrap() == before);
    let pulled = store.zkv(&pull);
    let downloaded_mib = pulled.err.lines().find_map(|line| line.strip_prefix("download")?.split_whitespace().next());
    let downloaded_mib: f64 = downloaded_mib.unwrap().parse().unwrap();
    assert!(downloaded_mib < len_bytes as f64 / f64::from(1 << 20) - 1.0, "{downloaded_mib} MiB");
    pulled.succeeds();
    assert!(fs::read(store.path("large.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
}
