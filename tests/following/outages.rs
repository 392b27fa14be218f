//! What a node reports while it cannot read the store.

use crate::helpers::published::{Published, health, health_within, wait_until_served};
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

#[test]
fn a_node_that_cannot_read_the_store_reports_since_when() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    assert_eq!(health(&node), (Some(0), String::new()));
    // A store that finds nothing, for example because its bucket was deleted, is an outage, too.
    for fault in [Fault::Dead, Fault::Stalled, Fault::Status(404), Fault::Status(500)] {
        store.fail("/", fault);
        node.wait_for("published_poll_age_s", 2);
        let (status, text) = health_within(&node, "1");
        assert_eq!(status, Some(1), "{fault:?}: {text}");
        assert!(text.contains(" was not read successfully for "), "{fault:?}: {text}");
        assert!(text.contains("so newer generations and pins are unknown: "), "{fault:?}: {text}");
        // The rows are served all the time, and a restart would not help.
        wait_until_served(&node, 1);
        assert_eq!(health(&node).0, Some(0), "{fault:?}");
        store.recover();
        eventually("the outage is over", || node.number("published_poll_age_s") <= 1 && health(&node).1.is_empty());
    }
    let age_s = node.number("published_serving_age_s");
    node.wait_for("published_serving_age_s", age_s + 1);
}
