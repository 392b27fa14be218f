//! Creations of documents whose responses are lost, late, or wrong.

use serde_json::{Value, json};

use super::stores::{Ran, Store};
use crate::helpers::fault_proxy::{FaultProxy, ProxyFault};
use crate::helpers::published::sealed;
use crate::helpers::trials::Missing;

/// A table on an S3 server behind a proxy.
pub(crate) struct Proxied {
    pub(crate) store: Store,
    pub(crate) proxy: FaultProxy,
}

impl Proxied {
    pub(crate) fn new() -> Result<Proxied, Missing> {
        let store = Store::s3()?;
        let proxy = FaultProxy::start(store.address());
        store.bake("table.db", "1,one\n");
        Ok(Proxied { store, proxy })
    }

    /// Runs `zkv`, whose requests the proxy transfers.
    pub(crate) fn zkv(&self, args: &[&str]) -> Ran {
        let mut command = self.store.zkv_command(args);
        Ran::new(command.env("AWS_ENDPOINT_URL", self.proxy.url()).output().unwrap())
    }

    fn publish(&self, parent: &str) -> Ran {
        self.zkv(&["publish", "table.db", "--to", "URL", "--json", "--parent", parent])
    }

    /// Returns the numbers of the documents of a series.
    fn numbers(&self, folder: &str) -> Vec<u64> {
        let number = |object: &String| object.rsplit('/').next().unwrap().trim_end_matches(".json").parse().unwrap();
        self.store.objects(folder).iter().map(number).collect()
    }
}

fn write_topology(proxied: &Proxied, number: u64, port: u16) {
    let node = json!({"id": "a", "host": "h", "port": port, "role": "primary", "slots": ["0-16383"]});
    let topology = json!({"format": 1, "number": number, "nodes": [node]});
    std::fs::write(proxied.store.path("topology.json"), topology.to_string()).unwrap();
}

pub(crate) fn a_creation_whose_response_is_lost_succeeds() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    for (fault, parent) in [(ProxyFault::LoseResponse, 0), (ProxyFault::Status(500, ""), 1)] {
        // All attempts of the HTTP client, and then one more.
        proxied.proxy.fail("PUT", "/manifests/", fault, if parent == 0 { 1 } else { 5 });
        let manifest = proxied.publish(&parent.to_string()).json();
        assert_eq!((&manifest["number"], &manifest["parent"]), (&json!(parent + 1), &json!(parent)));
    }
    assert_eq!(proxied.numbers("manifests"), [1, 2]);
    proxied.proxy.fail("PUT", "/pins/", ProxyFault::LoseResponse, 1);
    assert_eq!(proxied.zkv(&["pin", "URL", "1"]).succeeds(), "pin 1: all nodes serve generation 1\n");
    assert_eq!(proxied.numbers("pins"), [1]);
    proxied.proxy.fail("PUT", "/topology/", ProxyFault::LoseResponse, 1);
    write_topology(&proxied, 1, 1);
    let apply = || proxied.zkv(&["topology", "apply", "topology.json", "--to", "URL"]);
    apply().succeeds();
    // The command is repeated after the whole machine was lost.
    apply().succeeds();
    write_topology(&proxied, 1, 2);
    apply().fails(2, &["the topology has number 1, expected 2"]);
    assert_eq!(proxied.numbers("topology"), [1]);
    proxied.zkv(&["pin", "URL", "2", "--hold"]).succeeds();
    proxied.proxy.fail("PUT", "/decisions/", ProxyFault::LoseResponse, 1);
    proxied.zkv(&["rollout", "URL", "2", "--abort"]).succeeds();
    assert_eq!((proxied.numbers("decisions"), proxied.numbers("pins")), (vec![2], vec![1, 2, 3]));
    Ok(())
}

pub(crate) fn an_upload_whose_last_response_is_lost_succeeds() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.proxy.fail("POST", "?uploadId", ProxyFault::LoseResponse, 1);
    assert_eq!(proxied.publish("0").json()["number"], json!(1));
    assert_eq!(proxied.store.objects("data").len(), 1);
    proxied.store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    Ok(())
}

/// A store that loses races reports success to both publishers, and has the document of one of them.
pub(crate) fn a_commit_that_another_publisher_overwrote_gets_the_next_number() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    let mut other: Value = serde_json::from_slice(&proxied.store.read("manifests/00000000000000000001.json")).unwrap();
    (other["body"]["number"], other["body"]["parent"]) = (json!(2), json!(1));
    let other = sealed(&other["body"].to_string());
    proxied.proxy.fail("PUT", "/manifests/00000000000000000002", ProxyFault::Overwrite(other.clone()), 1);
    let ran = proxied.zkv(&["publish", "table.db", "--to", "URL", "--json"]);
    assert_eq!(ran.json()["number"], json!(3));
    assert_eq!(proxied.store.read("manifests/00000000000000000002.json"), other);
    proxied.proxy.reset();
    proxied.proxy.fail("PUT", "/manifests/00000000000000000004", ProxyFault::Overwrite(other), 1);
    proxied.publish("3").fails(2, &["generation 4 is the newest one, expected 3"]);
    Ok(())
}

/// A proxy that caches missing objects hides what was created.
pub(crate) fn reads_of_an_older_state_end_with_a_message() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    proxied.store.zkv(&["pin", "URL", "1"]).succeeds();
    for (series, args) in [
        ("/pins/", &["unpin", "URL"][..]),
        ("/manifests/", &["publish", "table.db", "--to", "URL"]),
        ("/topology/", &["topology", "apply", "topology.json", "--to", "URL"]),
    ] {
        write_topology(&proxied, 1, 1);
        proxied.proxy.reset();
        proxied.proxy.fail("GET|HEAD", series, ProxyFault::Status(404, ""), u64::MAX);
        let ran = proxied.zkv(args);
        ran.fails(2, &["does not return it", "before you repeat the command"]);
        let puts = proxied.proxy.requests("PUT", series);
        assert!((1..=8).contains(&puts.len()), "{series}: {} attempts", puts.len());
        let pauses: Vec<_> = puts.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        // Each pause is longer than half of the maximum of the pause before.
        assert!(pauses.iter().zip(1..).all(|(pause, n)| pause.as_millis() >= 50 << n), "{pauses:?}");
    }
    Ok(())
}

pub(crate) fn a_creation_without_permission_is_tried_once() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.proxy.fail("PUT", "/manifests/", ProxyFault::Status(403, ""), u64::MAX);
    proxied.publish("0").fails(2, &["403", "permissions"]);
    assert_eq!(proxied.proxy.requests("PUT", "/manifests/").len(), 1);
    Ok(())
}

/// A store that checks whether an object exists before it writes the object loses only some races.
pub(crate) fn a_store_that_loses_some_races_is_found() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.proxy.fail_every(40, "PUT", "/race-", ProxyFault::IgnoreCondition);
    let ran = proxied.zkv(&["store", "check", "URL", "--races", "40"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.out.contains("creates an object only once: yes\n"), "{ran:?}");
    assert!(
        ran.out.contains("creates an object only once in a race: no, in ") && ran.out.contains("not usable"),
        "{ran:?}"
    );
    Ok(())
}

pub(crate) fn a_store_that_hides_new_objects_is_found() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.proxy.fail_every(7, "GET", "/race-", ProxyFault::Status(404, ""));
    let ran = proxied.zkv(&["store", "check", "URL", "--races", "10"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.out.contains("returns new objects: no\n") && ran.out.contains("new objects are missing"), "{ran:?}");
    Ok(())
}
