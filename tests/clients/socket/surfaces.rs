//! The clients in Rust and Python have the same methods.
//!
//! Both Rust clients get their methods from the macros in `methods.rs` and `column_methods.rs`. The tests read the
//! sources, because Rust cannot list the methods of a type.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Methods that only the clients of one server in Rust have, and why the clients in Python do not have them. All other
/// methods of the macros are methods of every client.
const ONLY_IN_RUST: &[(&str, &str)] = &[
    ("connect", "the constructor connects"),
    ("connect_with", "the constructor has keyword arguments"),
    ("address", "repr() shows the address"),
    ("get_with", "Python cannot borrow from the receive buffer"),
    ("get_many_with", "Python cannot borrow from the receive buffer"),
    ("iter", "range() without arguments returns all rows"),
    ("first_page", "range() requests pages"),
    ("last_page", "range() requests pages"),
    ("expect_key_type", "the clients in Python encode keys, and encode them again for another type"),
    ("authenticate", "a client in Python has one user, which is an argument of its constructor"),
    ("reload", "administration uses zkv"),
    ("rollback", "administration uses zkv"),
    ("topology", "the clients of clusters in Python return the topology"),
    ("call", "Python has no types for requests"),
    ("call_with_schema", "Python has no types for requests"),
    ("get_rows_or_values", "get_many() returns rows or values"),
    ("get_projected", "columns() returns arrays"),
];

/// Methods that only the clients in Python have: in Rust, dropping a client closes its connection, `get_projected`
/// returns rows or buffers, `floor_many`, `ceiling_many`, and `cover_many` rows from which the caller takes columns,
/// `get` and `get_many` return bytes, and the types of keys are checked when a program is compiled. In Python, clients
/// are mappings.
const ONLY_IN_PYTHON: &[&str] = &[
    "ceiling_columns",
    "close",
    "columns",
    "cover_columns",
    "floor_columns",
    "get_bytes",
    "get_bytes_many",
    "items",
    "keys",
    "strict",
    "values",
];

/// Methods that only the blocking client in Rust has: direct mode needs no client while it looks keys up.
const ONLY_BLOCKING: &[&str] = &["direct", "direct_with"];

/// Methods of the clients of one server that the clients of clusters do not have, because each node has its own facts.
const ONLY_OF_SERVERS: &[&str] = &["info", "ping"];

/// Methods that only the client of clusters in Rust has, for the reasons that [`ONLY_IN_RUST`] states.
const ONLY_OF_CLUSTERS_IN_RUST: &[&str] = &[
    "call_with_schema",
    "connect",
    "connect_with",
    "cover_many_with_schema",
    "expect_key_type",
    "first_page",
    "get_many_with",
    "get_projected",
    "get_rows_or_values",
    "get_with",
    "iter",
    "last_page",
];

/// Methods of tables that clients do not have: because the protocol has no request for them; because they are hidden
/// (`columns_of`, `nearest_*`, `read*`); or, for the last four, because clients receive projected rows
/// (`get_projected`), which the caller copies into buffers or a matrix.
const ONLY_OF_TABLES: &[&str] = &[
    "ceiling_many_with",
    "columns_of",
    "count_many",
    "cover_columns",
    "cover_fill_columns",
    "cover_matrix",
    "cover_many_with",
    "floor_many_with",
    "has_ranges",
    "is_empty",
    "key",
    "key_kind",
    "len",
    "nearest_many",
    "nearest_many_with",
    "range_many",
    "read",
    "read_row",
    "read_rows",
    "read_values",
    "row",
    "fill_columns",
    "get_columns",
    "get_matrix",
    "get_row_with",
];

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names after `def ` or `fn ` in lines that start with one of the prefixes.
fn method_names(source: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let after_prefix = |line: &str| prefixes.iter().find_map(|prefix| line.strip_prefix(prefix).map(str::to_owned));
    let name = |rest: String| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
    source.lines().filter_map(after_prefix).map(name).filter(|name| !name.starts_with('_')).collect()
}

/// Returns the methods that the macros define for both clients in Rust.
fn rust_methods() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, name) in
        [("src/client/methods.rs", "impl_client"), ("src/client/column_methods.rs", "impl_column_methods")]
    {
        let macro_source = source(path);
        let methods = method_names(&macro_source, &["            pub fn ", "            pub $($async)? fn "]);
        assert!(methods.len() >= 5, "{path}: {methods:?}");
        found.extend(methods);
        for client in ["Client", "AsyncClient"] {
            assert!(macro_source.contains(&format!("\n{name}!({client},")), "{client}");
        }
    }
    found
}

/// Returns the methods of the clients in Rust that the clients in Python have, too.
fn shared_methods() -> BTreeSet<String> {
    let mut shared = rust_methods();
    for (name, _) in ONLY_IN_RUST {
        assert!(shared.remove(*name), "no client in Rust has {name}");
    }
    shared
}

#[test]
fn the_rust_clients_have_their_methods_from_the_same_macros() {
    // Other files add no methods, apart from direct mode.
    let (mut folders, mut file_count) = (vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/client")], 0);
    let mut others = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            file_count += 1;
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains("\nimpl AsyncClient {"), "{}", path.display());
            for block in text.split("\nimpl Client {").skip(1) {
                others.extend(method_names(block.split("\n}").next().unwrap(), &["    pub fn "]));
            }
        }
    }
    assert!(file_count > 20, "{file_count}");
    assert_eq!(others, ONLY_BLOCKING.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn the_python_clients_have_the_methods_of_the_rust_clients() {
    let mut expected = shared_methods();
    expected.extend(ONLY_IN_PYTHON.iter().map(|name| (*name).to_owned()));
    let of_clusters = of_clusters(&expected);
    for (path, class, expected) in [
        ("python/lib/zero_kv/_native.pyi", "Client", &expected),
        ("python/lib/zero_kv/_aio.py", "AsyncClient", &expected),
        ("python/lib/zero_kv/_native.pyi", "ClusterClient", &of_clusters),
        ("python/lib/zero_kv/_cluster.py", "AsyncClusterClient", &of_clusters),
    ] {
        let text = source(path);
        let mut found = methods_of_class(&text, class);
        if path.ends_with(".pyi") {
            found.extend(methods_of_class(&text, "LookupTable"));
        }
        assert_eq!(&found, expected, "{class}");
    }
}

/// Returns the methods that a class in Python defines.
fn methods_of_class(text: &str, class: &str) -> BTreeSet<String> {
    let names = [":", "(", "["].map(|end| format!("\nclass {class}{end}"));
    let (_, class_and_rest) = names.iter().find_map(|name| text.split_once(name)).unwrap();
    // The class ends at the next line that is not indented.
    let end = class_and_rest
        .match_indices('\n')
        .find(|(at, _)| class_and_rest[at + 1..].starts_with(|first: char| first != ' ' && first != '\n'));
    let class_source = &class_and_rest[..end.map_or(class_and_rest.len(), |(at, _)| at)];
    method_names(class_source, &["    def ", "    async def "])
}

#[test]
fn clients_have_the_lookups_of_tables() {
    let lookups = source("src/store/lookup.rs");
    let (_, after) = lookups.split_once("\npub trait Lookup {").unwrap();
    let of_tables = method_names(after.split("\n}").next().unwrap(), &["    fn "]);
    let of_clients = rust_methods();
    let missing: BTreeSet<String> = of_tables.difference(&of_clients).cloned().collect();
    assert_eq!(missing, ONLY_OF_TABLES.iter().map(|name| (*name).to_owned()).collect());
}

/// Returns the methods of the client of clusters, given those of the client of one server.
fn of_clusters(of_server: &BTreeSet<String>) -> BTreeSet<String> {
    let is_of_both = |name: &&String| !ONLY_OF_SERVERS.contains(&name.as_str());
    of_server.iter().filter(is_of_both).cloned().chain(["topology".to_owned()]).collect()
}

#[test]
fn the_client_of_clusters_has_the_methods_of_the_client_of_one_server() {
    let mut found = BTreeSet::new();
    for path in ["src/client/cluster.rs", "src/client/cluster/ordered.rs"] {
        for block in source(path).split("\nimpl ClusterClient {").skip(1) {
            found.extend(method_names(block.split("\n}").next().unwrap(), &["    pub fn "]));
        }
    }
    let mut expected = of_clusters(&shared_methods());
    expected.extend(ONLY_OF_CLUSTERS_IN_RUST.iter().map(|name| (*name).to_owned()));
    assert_eq!(found, expected);
}
