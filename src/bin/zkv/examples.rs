//! The examples of the help of each command.

use zero_kv::cli::examples::CommandExamples;

#[rustfmt::skip]
pub(crate) const EXAMPLES: &[CommandExamples] = &[
    ("", &[
        ("Write the value of a key in the table that the local server serves", "zkv get 128512"),
        ("Read a file instead, without a server", "zkv range --from 65 --limit 26 --db storage.db"),
        ("Log in to a server on another machine", "zkv get 7 --socket zkv+tls://reader@tables.internal:6390 --password-file password"),
        ("Bake a table, and serve it", "zkv bake rows.csv && zkv serve"),
    ]),
    ("get", &[
        ("Write the value of one key", "zkv get 128512"),
        ("Write the rows of several keys of a file as JSON", "zkv get storage.db 65 66 --format json"),
        ("Look up the keys in a file, one per line", "zkv get - < keys.txt"),
    ]),
    ("exists", &[
        ("Test a key in a script", "zkv exists 128512 && echo found"),
        ("Print the keys of a list that the table does not have", "zkv exists --print absent - < keys.txt"),
    ]),
    ("floor", &[("Find the row with the largest key at or below 15000", "zkv floor 15000")]),
    ("ceiling", &[("Find the row with the smallest key at or above 15000", "zkv ceiling 15000")]),
    ("first", &[("Write the first row of a file", "zkv first --db storage.db")]),
    ("last", &[("Write the last row", "zkv last")]),
    ("range", &[
        ("Write the first ten rows with keys from 1000 on", "zkv range --from 1000 --limit 10"),
        ("Write the last row with a key below 2000", "zkv range --to 2000 --reverse --limit 1"),
    ]),
    ("scan", &[("Write the rows of a file whose keys begin with a prefix", "zkv scan user: --limit 10 --db users.db")]),
    ("count", &[("Count the keys from 1000 to below 2000", "zkv count --from 1000 --to 2000")]),
    ("bench", &[
        ("Measure lookups through the server", "zkv bench --seconds 1 --batch 16"),
        ("Measure lookups in a file, with two threads", "zkv bench --seconds 1 --threads 2 --db storage.db"),
    ]),
    ("inspect", &[("Describe a file", "zkv inspect storage.db")]),
    ("verify", &[("Verify a file before copying it to other machines", "zkv verify storage.db")]),
    ("dump", &[
        ("Write the rows as CSV", "zkv dump storage.db -o rows.csv"),
        ("Write two columns of a typed table as JSON Lines", "zkv dump items.db --format jsonl --columns price,name"),
    ]),
    ("diff", &[
        ("Print the rows that differ between two files", "zkv diff storage.db storage.db --values"),
        ("Count these rows", "zkv diff storage.db storage.db --summary"),
    ]),
    ("canary", &[("Let servers check 100 keys of the next table before they serve it", "zkv canary storage.db --sample 100 > canaries.csv")]),
    ("slot", &[("Print the slots of two keys", "zkv slot user:1 user:2")]),
    ("info", &[("Print the counters of the server as JSON", "zkv info --json")]),
    ("ping", &[("Measure one round trip to a server at a certain address", "zkv ping --socket /tmp/zero-kv.sock")]),
    ("health", &[("Report the health of the server, for example to an orchestrator", "zkv health --verbose")]),
    ("top", &[
        ("Show live statistics", "zkv top"),
        ("Write one line of statistics", "zkv top --once --interval 0.1"),
    ]),
    ("reload", &[
        ("Serve a new file now", "zkv reload"),
        ("Go back to the preceding table", "zkv reload --rollback"),
    ]),
    ("topology", &[("Show the nodes of a cluster, and their slots", "zkv topology show topology.json")]),
    ("topology show", &[("Show the newest topology of a published table", "zkv topology show s3://tables/users --json")]),
    ("topology check", &[("Check a file", "zkv topology check topology.json")]),
    ("topology plan", &[("Plan a cluster of two nodes", "zkv topology plan --nodes a=10.0.0.1:6380,b=10.0.0.2:6380 > topology.json")]),
    ("topology apply", &[("Make a planned topology the newest one of a published table", "zkv topology apply topology.json --to s3://tables/users")]),
    ("topology watch", &[("Promote replicas of nodes that have not reported for 30 s", "zkv topology watch s3://tables/users --fail-after 30s")]),
    ("publish", &[
        ("Publish a file to a bucket", "zkv publish users.db --to s3://tables/users --note nightly"),
        ("Publish to a folder, for a test without an object store", "zkv publish users.db --to file:///srv/tables/users"),
    ]),
    ("generations", &[("List the newest generations, and the nodes that serve them", "zkv generations s3://tables/users")]),
    ("watch", &[
        ("Show the nodes of a table, and what they fetch", "zkv watch s3://tables/users"),
        ("Print the nodes as JSON, for a script", "zkv watch s3://tables/users --once --json"),
    ]),
    ("pin", &[("Go back to generation 41 on all nodes", "zkv pin s3://tables/users 41")]),
    ("unpin", &[("Serve the newest generation again", "zkv unpin s3://tables/users")]),
    ("policy", &[
        ("Show the quotas of a table", "zkv policy s3://tables/users"),
        ("Reject generations of more than 50 GB", "zkv policy s3://tables/users --max-bytes 50GB"),
    ]),
    ("pull", &[("Download the table into one file", "zkv pull s3://tables/users -o users.db")]),
    ("copy", &[
        ("Copy the table to a bucket in another region", "zkv copy s3://tables/users s3://tables-eu/users"),
        ("Copy generation 42 to a folder", "zkv copy s3://tables/users file:///srv/tables/users 42"),
    ]),
    ("gc", &[
        ("List the files that only older generations than the newest ten need", "zkv gc s3://tables/users --keep 10"),
        ("Delete these files", "zkv gc s3://tables/users --keep 10 --delete"),
    ]),
    ("store", &[("Check a bucket before publishing to it", "zkv store check s3://tables/users")]),
    ("store check", &[("Check a bucket before publishing to it", "zkv store check s3://tables/users")]),
    ("rollout", &[
        ("Serve generation 42 on one node first, then on all nodes", "zkv rollout s3://tables/users 42 --canary-nodes 1"),
        ("Serve generation 42 on all nodes at the same time", "zkv rollout s3://tables/users 42 --barrier"),
    ]),
    ("bake", &[("Bake rows of key,value into ./storage.db", "zkv bake rows.csv")]),
    ("serve", &[("Serve a file on the default socket", "zkv serve storage.db")]),
    ("saturate", &[("Saturate the server for 3 s, and compare every value with the file", "zkv saturate --db storage.db --verify --seconds 3")]),
];
