//! The folder of a node: starts without the store, resumed downloads, and the space that generations take.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use zero_kv::publish::{Canary, CommitOptions, GarbageRules};

use crate::helpers::generations::named;
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::published::{Published, SHAPE, health, names, wait_for_error, wait_until_served};
use crate::helpers::servers::{Server, failure_message};
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

#[test]
fn a_node_starts_from_its_cache_without_the_store() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    drop(published.node_of("a", &store.url("users")));
    published.publish(2);
    store.fail("/", Fault::Dead);
    let node = published.node_of("a", &store.url("users"));
    // The thread that follows the table may log this after the server is ready.
    node.expect_logged("serving published generation 1 from the cache, without the store", 1);
    wait_until_served(&node, 1);
    store.recover();
    wait_until_served(&node, 2);
}

#[test]
fn a_node_starts_from_its_cache_while_the_folder_of_the_store_is_missing() {
    let published = Published::new();
    published.publish(1);
    drop(published.node("a"));
    let (store, unmounted) = (published.store(), published.folder.path().join("unmounted"));
    fs::rename(&store, &unmounted).unwrap();
    let node = published.node("a");
    node.expect_logged("serving published generation 1 from the cache, without the store", 1);
    wait_for_error(&node, "store/users: No such file or directory");
    wait_until_served(&node, 1);
    fs::rename(unmounted, store).unwrap();
    published.publish(2);
    wait_until_served(&node, 2);
}

#[test]
fn a_node_without_a_store_and_without_a_cache_waits_and_stops_on_a_signal() {
    let published = Published::new();
    let command = published.node_command("a", "file:///no/such/folder");
    let mut node = Server::spawn(command, &published.socket("a"));
    node.wait_for_log("/no/such/folder: No such file or directory");
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[test]
fn a_node_with_an_empty_cache_is_ready_when_it_serves() {
    let published = Published::new();
    let mut node = Server::spawn(published.node_command("a", published.publication.url()), &published.socket("a"));
    node.wait_for_log("the cache has no complete generation: waiting for the store");
    assert!(!published.socket("a").exists());
    published.publish(1);
    node.wait_for_log("ready on ");
    wait_until_served(&node, 1);
}

#[test]
fn a_node_that_waits_for_the_store_stops_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let published = Published::new();
        let mut node = Server::spawn(published.node_command("a", published.publication.url()), &published.socket("a"));
        node.wait_for_log("waiting for the store");
        node.signal(signal);
        assert!(node.wait().success());
    }
}

#[test]
fn a_node_that_is_killed_during_a_download_continues_it() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let command = |rate: &str| {
        let mut command = published.node_command("a", &store.url("users"));
        // Later polls would send further requests.
        command.args(["--fetch-bandwidth", rate, "--poll", "1h"]);
        command
    };
    // The file has more than one range of 64 KiB.
    let mut node = Server::spawn(command("100KB"), &published.socket("a"));
    let data = published.cache("a").join("data");
    eventually("a range is complete", || {
        data.exists() && names(&data).iter().any(|name| name.ends_with(".partial.json"))
    });
    node.kill();
    let state = names(&data).into_iter().find(|name| name.ends_with(".partial.json")).unwrap();
    assert!(fs::read_to_string(data.join(state)).unwrap().contains("\"ranges\":[{"));
    let before = store.sent_bytes();
    let node = Server::of(command("100KB"), &published.socket("a"));
    wait_until_served(&node, 1);
    let len_bytes = published.data_file(1).metadata().unwrap().len();
    let sent_bytes = store.sent_bytes() - before;
    assert!(sent_bytes < len_bytes, "{sent_bytes} of {len_bytes} bytes were sent again");
}

#[test]
fn a_damaged_partial_download_is_fetched_again() {
    let published = Published::new();
    published.publish(1);
    let manifest = published.publication.manifest(None).unwrap();
    let data = published.cache("a").join("data");
    fs::create_dir_all(&data).unwrap();
    let len = manifest.bytes();
    fs::write(data.join(format!("{}.zkv.partial", manifest.digest())), vec![0; len as usize]).unwrap();
    let object_url = format!("{}/{}", published.publication.url(), manifest.entries[0].object);
    let state = format!(r#"{{"object_url":"{object_url}","complete":{{"ranges":[{{"start":0,"end":{len}}}]}}}}"#);
    fs::write(data.join(format!("{}.zkv.partial.json", manifest.digest())), state).unwrap();
    wait_until_served(&published.node("a"), 1);
}

#[test]
fn a_damaged_file_in_the_cache_is_fetched_again() {
    let published = Published::new();
    published.publish(1);
    drop(published.node("a"));
    let data = published.cache("a").join("data");
    let file = data.join(names(&data).remove(0));
    let mut bytes = fs::read(&file).unwrap();
    bytes[0] ^= 1;
    // A new file, because the one that was served has another name, too.
    fs::remove_file(&file).unwrap();
    fs::write(&file, bytes).unwrap();
    wait_until_served(&published.node("a"), 1);
}

#[test]
fn a_folder_that_overlaps_the_store_is_rejected_before_anything_is_deleted() {
    let published = Published::new();
    (1..=5).for_each(|generation| published.publish(generation));
    let table = published.table();
    let manifests = names(&table.join("manifests"));
    let link = published.folder.path().join("link");
    std::os::unix::fs::symlink(&table, &link).unwrap();
    for cache in [table.clone(), table.join("data"), table.join("new/cache"), published.store(), link] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
        command.args(["--from", published.publication.url(), "--cache"]).arg(&cache);
        let message = failure_message(command, 1);
        assert!(message.contains("overlaps the store in ") && message.contains("choose another folder"), "{message}");
    }
    assert_eq!(names(&table.join("manifests")), manifests);
    assert!(!table.join("lock").exists() && !table.join("new").exists());
}

#[test]
fn a_folder_with_the_files_of_another_table_serves_the_table_of_the_url() {
    let (users, orders, later) = (Published::new(), Published::new(), Published::new());
    users.publish(1);
    drop(users.node("a"));
    // Each table has one generation. Returns the digest of the table.
    let publish_rows_of = |published: &Published, number: u64| {
        let db = published.folder.path().join("rows.db");
        SHAPE.bake(number, &db);
        assert_eq!(published.publish_file(&db, &CommitOptions::default()), 1);
        published.publication.manifest(None).unwrap().digest()
    };
    let digest = publish_rows_of(&orders, 11);
    let node = users.node_of("a", orders.publication.url());
    eventually("the table of the URL is served", || node.info().get("digest") == Some(digest.as_str()));
    // The table is deleted, and created again.
    let digest = publish_rows_of(&later, 12);
    for name in ["data", "manifests"] {
        fs::remove_dir_all(orders.table().join(name)).unwrap();
        fs::rename(later.table().join(name), orders.table().join(name)).unwrap();
    }
    eventually("the new table is served", || node.info().get("digest") == Some(digest.as_str()));
    eventually("the error is forgotten", || health(&node) == (Some(0), String::new()));
}

#[test]
fn a_node_whose_cache_is_deleted_or_moved_fetches_its_file_again() {
    let published = Published::new();
    published.publish(1);
    let (node, cache) = (published.node("a"), published.cache("a"));
    // The node may create a file in the folder meanwhile.
    let delete = |folder: &Path| eventually("the folder is deleted", || fs::remove_dir_all(folder).is_ok());
    let lose: [(&str, &dyn Fn()); 4] = [
        ("folder deleted", &|| delete(&cache)),
        ("folder moved", &|| fs::rename(&cache, cache.with_extension("moved")).unwrap()),
        ("data deleted", &|| delete(&cache.join("data"))),
        ("manifests deleted", &|| delete(&cache.join("manifests"))),
    ];
    for (generation, (lost, lose)) in (1..).zip(lose) {
        wait_until_served(&node, generation);
        lose();
        let notice =
            format!("generation {generation}: the folder of the cache was deleted or replaced: it is fetched again");
        eventually("the loss is logged", || node.logged(&notice) > 0);
        eventually(lost, || {
            let has = |name: &str| cache.join(name).exists();
            ["serving.db", "data", "manifests"].into_iter().all(has)
                && published.kept_and_garbage("a").1 == Vec::<String>::new()
        });
        wait_until_served(&node, generation);
        published.publish(generation + 1);
    }
    wait_until_served(&node, 5);
    eventually("the error is forgotten", || health(&node) == (Some(0), String::new()));
    drop(node);
    // The folder has everything that a start without the store needs.
    wait_until_served(&published.node_of("a", "http://127.0.0.1:1/users"), 5);
}

#[test]
fn a_file_in_the_place_of_the_cache_is_reported_until_it_is_removed() {
    let published = Published::new();
    published.publish(1);
    let (node, cache) = (published.node("a"), published.cache("a"));
    for (generation, place) in (1..).zip([cache.clone(), cache.join("data"), cache.join("manifests")]) {
        fs::rename(&place, published.folder.path().join(format!("moved-{generation}"))).unwrap();
        // The node may create the folder again before the file is there.
        eventually("a file takes the name", || {
            let _ = fs::remove_dir_all(&place);
            fs::write(&place, "no folder").is_ok()
        });
        wait_for_error(&node, "Not a directory (os error 20): expected a folder: remove what has this name");
        eventually("the problem is logged", || node.logged(&format!("{}: Not a directory", place.display())) > 0);
        wait_until_served(&node, generation);
        fs::remove_file(&place).unwrap();
        eventually("the folder is complete", || {
            let has = |name: &str| cache.join(name).exists();
            ["data", "manifests"].into_iter().all(has) && published.kept_and_garbage("a").1 == Vec::<String>::new()
        });
        published.publish(generation + 1);
        wait_until_served(&node, generation + 1);
        eventually("the error is forgotten", || health(&node) == (Some(0), String::new()));
    }
}

#[test]
fn nodes_that_are_killed_at_any_time_converge() {
    let published = Published::new();
    published.publish(1);
    let mut generation = 1;
    for round in 0..6 {
        let mut node = published.node("a");
        generation += 1;
        published.publish(generation);
        let polls = node.number("published_polls");
        eventually("the next poll has begun", || node.number("published_polls") > polls + round % 3);
        node.kill();
    }
    wait_until_served(&published.node("a"), generation);
}

#[test]
fn a_cache_keeps_the_chosen_number_of_generations() {
    let published = Published::new();
    published.publish(1);
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--keep", "2"]);
    let node = Server::of(command, &published.socket("a"));
    for number in 2..=5 {
        published.publish(number);
        wait_until_served(&node, number);
    }
    let kept = || names(&published.cache("a").join("manifests"));
    eventually("two generations are left", || kept().len() == 2);
    assert_eq!(kept(), ["00000000000000000004.json", "00000000000000000005.json"]);
    eventually("two files are left", || names(&published.cache("a").join("data")).len() == 2);
}

#[test]
fn a_generation_that_fails_its_canaries_is_rejected_and_the_next_one_is_served() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let load = MixedLoad::start(&node, SHAPE, 1);
    let db = published.folder.path().join("wrong.db");
    SHAPE.bake(2, &db);
    let canary = Canary { key: "1".to_owned(), digest: "absent".to_owned() };
    let options = CommitOptions { canaries: vec![canary], ..CommitOptions::default() };
    assert_eq!(published.publish_file(&db, &options), 2);
    wait_for_error(&node, "canary 1: found");
    let (status, lines) = health(&node);
    assert!(status == Some(0) && lines.contains("canary 1: found"), "{lines}");
    load.wait_for_right(1000);
    load.allow(3);
    published.publish(3);
    wait_until_served(&node, 3);
    assert_eq!(load.finish(), 0);
}

#[test]
fn a_rejected_generation_is_not_served_after_a_restart_either() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let db = published.folder.path().join("wrong.db");
    SHAPE.bake(2, &db);
    let canary = Canary { key: "1".to_owned(), digest: "absent".to_owned() };
    published.publish_file(&db, &CommitOptions { canaries: vec![canary], ..CommitOptions::default() });
    wait_for_error(&node, "canary 1: found");
    drop(node);
    let node = published.node("a");
    wait_until_served(&node, 1);
    wait_for_error(&node, "canary 1: found");
}

#[test]
fn garbage_that_is_collected_during_a_download_does_not_stop_a_node() {
    let published = Published::new();
    published.publish(1);
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--fetch-bandwidth", "1MB"]);
    let node = Server::of(command, &published.socket("a"));
    let load = MixedLoad::start(&node, SHAPE, 1);
    load.allow(8);
    let rules = GarbageRules { keep: 1, age_min: Duration::ZERO, delete: true };
    for number in 2..=8 {
        published.publish(number);
        published.publication.collect_garbage(&rules).unwrap();
    }
    wait_until_served(&node, 8);
    assert_eq!(load.finish(), 0);
    // Nothing but the newest generation, and the generations that the node's last status named, is left.
    published.publication.collect_garbage(&rules).unwrap();
    assert!(names(&published.table().join("data")).len() <= 8 && published.data_file(8).exists());
}

#[test]
fn a_hundred_connections_see_no_gap_while_generations_change() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let mut connections: Vec<_> =
        (0..100).map(|_| PipelinedConnection::new(Protocol::Native, node.connect())).collect();
    let mut newest_of = vec![1; connections.len()];
    let keys: Vec<u64> = (1..=16).collect();
    for number in 2..=6 {
        published.publish(number);
        while newest_of.iter().any(|newest| *newest < number) {
            connections.iter_mut().for_each(|connection| connection.ask(&keys));
            for (connection, newest) in connections.iter_mut().zip(&mut newest_of) {
                for (key, answer) in keys.iter().zip(connection.answers(keys.len()).unwrap()) {
                    let Answer::Value(value) = answer else { panic!("key {key}: {answer:?}") };
                    let generation = named(&value).unwrap();
                    assert_eq!(Some(value), SHAPE.value(generation, *key));
                    assert!((*newest..=number).contains(&generation), "{generation} after {newest}");
                    *newest = generation;
                }
            }
        }
    }
}

#[test]
fn a_cache_belongs_to_one_process() {
    let published = Published::new();
    published.publish(1);
    let _node = published.node("a");
    let message = failure_message(published.node_command("a", published.publication.url()), 1);
    assert!(message.contains("another process uses this folder"), "{message}");
}

#[test]
fn options_of_a_published_table_are_checked() {
    let published = Published::new();
    let failing = |args: &[&str], status| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
        command.args(args).arg("--cache").arg(published.cache("a"));
        failure_message(command, status)
    };
    let url = published.publication.url();
    for (args, status, expected) in [
        (&["--from", "ftp://host/users"][..], 1, "expected s3, gs, az, file, http, or https"),
        (&["--from", url, "--db", "a.db"], 2, "cannot be used with"),
        (&["--from", url, "--poll", "0s"], 2, "expected 0.01 to 1000000 seconds"),
        (&["--from", url, "--keep", "0"], 2, "0 is not in 1..=65535"),
        (&["--from", url, "--node", "a/b"], 2, "letters, digits"),
    ] {
        let message = failing(args, status);
        assert!(message.contains(expected), "{args:?}: {message}");
    }
}
