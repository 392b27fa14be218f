//! Stores that are slow or busy, and many nodes.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::lost_responses::Proxied;
use crate::helpers::fault_proxy::ProxyFault;
use crate::helpers::published::{sealed, start_node};
use crate::helpers::trials::Missing;

pub(crate) fn requests_wait_as_long_as_a_busy_store_asks() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    proxied.proxy.fail("HEAD", "/manifests/", ProxyFault::Status(503, "Retry-After: 2\r\n"), 1);
    proxied.proxy.fail("HEAD", "/manifests/", ProxyFault::Status(429, "retry-after: 1\r\n"), 1);
    proxied.zkv(&["generations", "URL"]).succeeds();
    let requests = proxied.proxy.requests("GET|HEAD|PUT", "");
    let pauses: Vec<Duration> = requests.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    // The proxy sees a request a moment after the client has sent it, so a pause may look slightly shorter than it was.
    assert!(pauses[0] > Duration::from_millis(1900) && pauses[1] > Duration::from_millis(900), "{pauses:?}");
    Ok(())
}

pub(crate) fn a_command_waits_for_a_busy_store_until_its_deadline() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    proxied.proxy.fail("GET|HEAD|PUT", "", ProxyFault::Status(503, "Retry-After: 60\r\n"), u64::MAX);
    let ran = proxied.zkv(&["rollout", "URL", "1", "--wait", "--timeout", "10s"]);
    ran.fails(2, &["the store is busy (status 503), and asks to wait", "longer than this command may wait: repeat"]);
    assert_eq!(proxied.proxy.requests("GET|HEAD|PUT", "").len(), 1, "{ran:?}");
    // A command that may wait says what it waits for.
    proxied.proxy.reset();
    proxied.proxy.fail("HEAD", "/manifests/", ProxyFault::Status(503, "Retry-After: 6\r\n"), 1);
    let ran = proxied.zkv(&["generations", "URL"]);
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert!(ran.err.contains(": the store is busy (status 503), and asked to wait"), "{ran:?}");
    Ok(())
}

pub(crate) fn a_part_that_takes_longer_than_a_response_is_sent_once() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    let rows: String = (0..10_000).map(|key| format!("{key},{key:0100}\n")).collect();
    proxied.store.bake("table.db", &rows);
    // A response without a sent body has to begin within 15 s.
    proxied.proxy.fail("PUT", "/data/", ProxyFault::Delay(Duration::from_secs(17)), 1);
    proxied.zkv(&["publish", "table.db", "--to", "URL"]).succeeds();
    assert_eq!(proxied.proxy.requests("PUT", "/data/").len(), 1);
    Ok(())
}

pub(crate) fn statuses_of_many_nodes_are_read_at_the_same_time() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    for number in 0..100 {
        let node = format!("node-{number:03}");
        let status = json!({"node": node, "serving": 1, "digest": "", "prepared": 1, "newest": 1, "pin": 1_u64 << 52, "lag_s": 0,
            "error": "", "failed": 0, "updated": "", "tool": ""});
        proxied.store.write(&format!("status/{node}.json"), sealed(&status.to_string()));
    }
    proxied.proxy.fail("GET", "/status/", ProxyFault::Delay(Duration::from_millis(200)), u64::MAX);
    let listed = proxied.zkv(&["generations", "URL", "--json"]).json();
    assert_eq!(listed["generations"][0]["nodes"].as_array().unwrap().len(), 100);
    assert!(proxied.proxy.in_flight_max() >= 30, "{} requests in flight", proxied.proxy.in_flight_max());
    let rollout = proxied.zkv(&["rollout", "URL", "1", "--wait", "--timeout", "10min", "--json"]).json();
    assert_eq!(rollout["nodes"].as_array().unwrap().len(), 100);
    Ok(())
}

pub(crate) fn a_node_sends_two_requests_for_each_poll_and_no_status_without_a_change() -> Result<(), Missing> {
    const POLLS: u64 = 96;
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    let socket = proxied.store.path("a.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.args(["--from", proxied.store.url(), "--node", "a", "--poll", "10ms", "--socket"]).arg(&socket);
    command.arg("--cache").arg(proxied.store.path("cache")).envs(proxied.store.variables());
    command.env("AWS_ENDPOINT_URL", proxied.proxy.url()).env("RUST_LOG", "info");
    let node = start_node(command, &socket);
    let polls = node.number("published_polls");
    // What the node has served is reported within a second.
    node.wait_for("published_polls", polls + 48);
    let (requests, statuses) = (
        || proxied.proxy.requests("GET|HEAD|PUT", "").len(),
        || proxied.proxy.requests("PUT", "/status/").len() as u64,
    );
    let (first_requests, first_statuses, first, started) =
        (requests(), statuses(), node.number("published_polls"), Instant::now());
    assert!((1..=20).contains(&first_statuses), "{first_statuses} statuses at the start");
    node.wait_for("published_polls", first + POLLS);
    let polls = node.number("published_polls") + 1 - first;
    let (sent_requests, sent_statuses) = ((requests() - first_requests) as u64, statuses() - first_statuses);
    let minutes = started.elapsed().as_secs() / 60 + 1;
    // A report is due each minute, and reads the report before.
    assert!(sent_statuses <= minutes, "{sent_statuses} statuses in {minutes} minutes");
    // Two requests for each poll, and three more for every twelfth one.
    let budget = 2 * polls + 3 * (polls / 12 + 1) + 2 * minutes;
    assert!(sent_requests <= budget, "{sent_requests} requests for {polls} polls, expected at most {budget}");
    Ok(())
}
