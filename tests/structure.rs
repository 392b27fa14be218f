//! Imports point downward: between the folders of `src/`, between the modules of the server, and in some order between
//! the modules of every folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files of `src/` that form the library, from the lowest layer to the highest.
const LIBRARY: &[&str] = &[
    "printable",
    "calendar",
    "cidr",
    "counted",
    "sync",
    "setting",
    "folder",
    "special_file",
    "csv_text",
    "user_namespace",
    "machine_memory",
    "protocol",
    "cluster",
    "format",
    "replace",
    "typed",
    "store",
    "config_file",
    "canary",
    "direct",
    "bake",
    "publish",
    "client",
    "server",
    "cli",
];

/// The path of a module, such as `["server", "redis", "info"]`.
type ModulePath = Vec<String>;

/// A source file of the library.
struct Source {
    module: ModulePath,
    text: String,
}

/// Returns the text without comments, string literals, and its inline module of tests.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        if is_test && lines.peek().is_some_and(|next| next.contains("mod ") && next.ends_with('{')) {
            break;
        }
        if !line.trim_start().starts_with("//") {
            code.push_str(line.split(" // ").next().unwrap_or_default());
            code.push('\n');
        }
    }
    code
}

/// Returns the modules that a file declares for tests only.
fn test_modules(text: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.windows(2).filter(|pair| pair[0].starts_with("#[cfg(test)]") || pair[0].contains("all(test"));
    let name = |line: &str| Some(line.strip_suffix(';')?.rsplit_once("mod ")?.1.to_owned());
    declared.filter_map(|pair| name(pair[1])).collect()
}

/// Splits code into identifiers, `::`, and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (Vec::new(), code);
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match first {
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            first => first.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(&rest[..len]);
        }
        rest = &rest[len..];
    }
    tokens
}

/// Adds the paths that begin at the front of `tokens`, one for each branch of a `use` tree. Returns the tokens after
/// them.
fn paths<'t>(mut tokens: &'t [&'t str], prefix: &[&'t str], found: &mut Vec<Vec<&'t str>>) -> &'t [&'t str] {
    let mut path = prefix.to_vec();
    loop {
        match tokens {
            ["{", rest @ ..] => {
                tokens = rest;
                loop {
                    tokens = paths(tokens, &path, found);
                    match tokens {
                        [",", rest @ ..] => tokens = rest,
                        ["}", rest @ ..] => return rest,
                        [_, rest @ ..] => tokens = rest,
                        [] => return tokens,
                    }
                }
            }
            [name, "::", rest @ ..] if *name != "}" => {
                path.push(name);
                tokens = rest;
            }
            [name, rest @ ..] if *name != "}" && *name != "," => {
                path.push(name);
                found.push(path);
                return rest;
            }
            _ => return tokens,
        }
    }
}

/// Returns the full paths that a file names by `crate::` or `super::`.
fn named(source: &Source) -> Vec<Vec<String>> {
    let code = code(&source.text);
    let tokens = tokens(&code);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        // Not `pub(super)`, `pub(in crate::server)`, and parts of a path.
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        let is_path = tokens.get(at + 1) == Some(&"::") && !["::", "in"].contains(&before);
        if is_path && ["crate", "super"].contains(&tokens[at]) {
            paths(&tokens[at..], &[], &mut found);
        }
    }
    let resolve = |path: Vec<&str>| {
        let mut module = source.module.clone();
        let mut path = path.into_iter().peekable();
        if path.next_if_eq(&"crate").is_some() {
            module.clear();
        }
        while path.next_if_eq(&"super").is_some() {
            module.pop();
        }
        module.into_iter().chain(path.map(str::to_owned)).collect()
    };
    found.into_iter().map(resolve).collect()
}

/// Returns each import below `base` that does not point to an earlier module of `order`, as `from -> to`.
fn upward_imports(sources: &[Source], base: &[&str], order: &[String]) -> BTreeSet<String> {
    let position = |name: &str| order.iter().position(|module| module == name);
    let child = |path: &[String]| {
        let is_below = path.len() > base.len() && path.iter().zip(base).all(|(name, base)| name == base);
        is_below.then(|| path[base.len()].clone())
    };
    let mut upward = BTreeSet::new();
    for source in sources {
        let Some(from) = child(&source.module) else { continue };
        for path in named(source) {
            let Some(to) = child(&path).filter(|to| *to != from) else { continue };
            // The names of the library's root are constants and exports.
            if base.is_empty() && position(&to).is_none() {
                continue;
            }
            if position(&to).is_none_or(|to| position(&from).is_none_or(|from| to > from)) {
                upward.insert(format!("{from} -> {to}"));
            }
        }
    }
    upward
}

/// Returns the modules directly below `base` that import one another in a cycle, and those that import such modules.
fn modules_in_cycles(sources: &[Source], base: &[String]) -> BTreeSet<String> {
    let child = |path: &[String]| path.strip_prefix(base)?.first().cloned();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Some(from) = child(&source.module) else { continue };
        let named = named(source).into_iter().filter_map(|path| child(&path)).filter(|to| *to != from);
        imports.entry(from.clone()).or_default().extend(named);
    }
    // Items that the module `base` itself defines or exports are not modules.
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    imports.values_mut().for_each(|to| to.retain(|name| modules.contains(name)));
    while let Some(lowest) = imports.iter().find(|(_, to)| to.is_empty()).map(|(name, _)| name.clone()) {
        imports.remove(&lowest);
        imports.values_mut().for_each(|to| to.retain(|name| *name != lowest));
    }
    imports.into_keys().collect()
}

/// Reads the source files of the library below a folder, without modules of tests.
fn read(folder: &Path, module: &[String], sources: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let declared = ["mod.rs", "lib.rs"].map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default()).concat();
    let skipped: BTreeSet<String> = test_modules(&declared);
    for path in entries {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_root = module.is_empty() && !LIBRARY.contains(&&*name);
        if is_root || skipped.contains(&name) || name == "tests" {
            continue;
        }
        let mut inner = module.to_vec();
        if path.is_dir() {
            inner.push(name);
            read(&path, &inner, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if name != "mod" {
                inner.push(name);
            }
            sources.push(Source { module: inner, text: fs::read_to_string(&path).unwrap() });
        }
    }
}

fn library() -> Vec<Source> {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut sources);
    sources
}

/// Returns the modules of the numbered list in the server's documentation, in order.
fn server_order(documentation: &str) -> Vec<String> {
    let items = documentation.lines().filter_map(|line| {
        let (number, item) = line.strip_prefix("//! ")?.split_once(". ")?;
        number.parse::<u32>().ok()?;
        Some(item.split_once(": ")?.0)
    });
    items.flat_map(|names| names.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn folders_of_the_library_import_only_lower_ones() {
    let order: Vec<String> = LIBRARY.iter().map(|name| (*name).to_owned()).collect();
    let sources = library();
    let found: BTreeSet<&str> = sources.iter().map(|source| &*source.module[0]).collect();
    assert_eq!(found, LIBRARY.iter().copied().collect(), "the list of layers in this test is complete");
    assert_eq!(upward_imports(&sources, &[], &order), BTreeSet::new());
}

/// An embedder or a Python program has no options, so `src/setting.rs` adds the fields to their names.
#[test]
fn messages_of_the_library_name_options_only_through_settings() {
    let is_named = |line: &str| line.split("--").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    let named = |source: &Source| {
        let code = code(&source.text);
        let lines: Vec<String> = code.lines().filter(|line| is_named(line)).map(str::to_owned).collect();
        lines.into_iter().map(|line| format!("{}: {}", source.module.join("::"), line.trim())).collect::<Vec<_>>()
    };
    let library = library();
    let may_name = |source: &&Source| ["cli", "setting"].contains(&&*source.module[0]);
    let found: Vec<String> = library.iter().filter(|source| !may_name(source)).flat_map(named).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(library.iter().any(|source| source.text.contains("Setting::Memory")), "the files were read");
    assert!(is_named("\"choose --memory\"") && !is_named("a -- b"));
}

/// A width that is known only at run time comes from foreign text, whose length may exceed the 16 bits of a width.
#[test]
fn only_the_table_of_text_aligns_by_the_length_of_text() {
    let aligns = |line: &str| {
        line.split('{').skip(1).any(|rest| {
            let (name, format) = rest.split('}').next().unwrap_or_default().split_once(':').unwrap_or_default();
            let is_named = name.chars().all(|c: char| c.is_alphanumeric() || c == '_');
            let width = format.trim_start_matches(['<', '>', '^']);
            is_named && width.ends_with('$') && !width.starts_with(['0', '.'])
        })
    };
    assert!(aligns("format!(\"{cell:<width$}\")") && aligns("\"{cell:width$}  {x}\"") && !aligns("{ a: b$ }"));
    assert_eq!(
        files_that(aligns, &["src/bin", "src/cli", "src/kv_store"]),
        [
            "src/bin/zkv/text_table",
            // The width of an area of the screen.
            "src/bin/zkv/top/screen/draw",
        ]
    );
}

/// `output.rs` makes everything that `zkv` prints printable.
#[test]
fn zkv_prints_only_through_its_module_of_output() {
    assert_eq!(
        files_that(|line| line.contains("stderr()") || line.contains("eprint"), &["src/bin/zkv"]),
        ["src/bin/zkv/output"]
    );
    assert_eq!(
        files_that(|line| line.contains("stdout()") && !line.contains("RowOutput"), &["src/bin/zkv"]),
        [
            // The screen, and numbers.
            "src/bin/zkv/dump",
            "src/bin/zkv/key_lines",
            "src/bin/zkv/lookup",
            "src/bin/zkv/output",
            "src/bin/zkv/top",
        ]
    );
}

/// Returns the modules in these folders, in order, that have a line for which `is_found` is true.
fn files_that(is_found: impl Fn(&str) -> bool, folders: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    folders.iter().for_each(|folder| read(&root.join(folder), &[(*folder).to_owned()], &mut sources));
    let found = sources.iter().filter(|source| code(&source.text).lines().any(&is_found));
    let mut paths: Vec<String> = found.map(|source| source.module.join("/")).collect();
    paths.sort();
    paths
}

/// A new pair of memory orderings gets a model or a written reason in the table of `src/sync.rs`.
#[test]
fn the_table_of_memory_orderings_lists_every_module_that_has_one() {
    let is_ordered = |line: &str| {
        ["Acquire", "Release", "AcqRel", "SeqCst"].iter().any(|order| line.contains(&format!("Ordering::{order}")))
    };
    let modules = files_that(is_ordered, &["src"]);
    let is_listed = |module: &&str| *module != "sync" && !module.ends_with("/models");
    let expected: BTreeSet<&str> = modules.iter().map(|module| &module["src/".len()..]).filter(is_listed).collect();
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sync.rs")).unwrap();
    let documentation = source.lines().filter(|line| line.starts_with("//! "));
    let list: String = documentation.skip_while(|line| !line.contains("These modules have orderings")).collect();
    let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, expected);
}

#[test]
fn modules_of_the_server_import_only_those_that_precede_them_in_its_documentation() {
    let sources = library();
    let root = sources.iter().find(|source| source.module == ["server"]).unwrap();
    let order = server_order(&root.text);
    let listed: BTreeSet<&str> = order.iter().map(String::as_str).collect();
    let in_server = sources.iter().filter(|source| source.module.len() > 1 && source.module[0] == "server");
    let found: BTreeSet<&str> = in_server.map(|source| &*source.module[1]).collect();
    assert_eq!(listed, found, "the list in src/server/mod.rs is complete");
    assert_eq!(upward_imports(&sources, &["server"], &order), BTreeSet::new());
}

#[test]
fn modules_of_a_folder_do_not_import_one_another_in_a_cycle() {
    let sources = library();
    let folders: BTreeSet<&[String]> =
        sources.iter().filter_map(|source| Some(source.module.split_last()?.1)).collect();
    assert!(folders.len() > 20, "the folders were found");
    for folder in folders {
        assert_eq!(modules_in_cycles(&sources, folder), BTreeSet::new(), "in src/{}", folder.join("/"));
    }
}

#[test]
fn a_cycle_of_imports_is_found() {
    let source =
        |name: &str, text: &str| Source { module: vec!["bake".to_owned(), name.to_owned()], text: text.to_owned() };
    let base = ["bake".to_owned()];
    let low = source("low", "use super::Options;");
    let middle = source("middle", "use super::low::Thing;\nuse super::high::Other;");
    assert_eq!(modules_in_cycles(&[low, middle], &base), BTreeSet::new(), "there is no module `high`");
    let middle = source("middle", "use super::high::Other;");
    let high = source("high", "use crate::bake::{middle, low};");
    assert_eq!(modules_in_cycles(&[middle, high], &base), ["high", "middle"].map(str::to_owned).into());
}

#[test]
fn an_upward_import_is_found_in_every_form() {
    let order: Vec<String> = ["low", "middle", "high"].map(str::to_owned).to_vec();
    let cases = BTreeMap::from([
        ("use super::high::Thing;", true),
        ("use crate::server::high;", true),
        ("use super::{low, high::{A, B}};", true),
        ("use super::{high as other};", true),
        ("fn f() -> super::high::Thing { super::low::g() }", true),
        ("use super::Config;", true),
        ("use super::low::Thing;", false),
        ("use super::super::client::high;", false),
        ("// use super::high::Thing;", false),
        ("pub(super) fn high() {}\npub(in crate::server) fn f() {}", false),
        ("#[cfg(test)]\nmod tests {\n    use super::super::high;\n}", false),
    ]);
    for (text, is_upward) in cases {
        let module = ["server", "middle"].map(str::to_owned).to_vec();
        let upward = upward_imports(&[Source { module, text: text.to_owned() }], &["server"], &order);
        assert_eq!(!upward.is_empty(), is_upward, "{text}: {upward:?}");
    }
    let list = "//! The server.\n//!\n//! 1. `low`, `middle`: why\n//! 2. `high`: why\n";
    assert_eq!(server_order(list), order);
}

/// Calls that create, replace, link, or remove files by their paths, and so could follow links of other users.
const FILE_CALLS: [&str; 20] = [
    "File::create",
    "fs::write",
    "fs::rename",
    "fs::hard_link",
    "fs::copy",
    "fs::remove_file",
    "fs::set_permissions",
    ".create(true)",
    ".create_new(",
    "OFlags::CREATE",
    "OFlags::TMPFILE",
    "O_CREAT",
    "tempfile_in(",
    "tempfile::tempfile(",
    "NamedTempFile",
    ".persist(",
    "symlink(",
    "linkat(",
    "renameat(",
    "mknodat(",
];

/// The files that may contain such calls, and these calls. Sockets are no files that a program opens.
const MAY_CALL: [(&str, &[&str]); 1] = [
    // The permissions of /proc/self/fd/N.
    ("src/server/listen/listener.rs", &["fs::remove_file", "fs::set_permissions"]),
];

/// Returns the Rust files below a folder, apart from tests.
fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" && name != "simulation" {
                rust_files(&path, files);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "models.rs" {
            files.push(path);
        }
    }
}

/// Returns the calls of [`FILE_CALLS`] in the code of a file.
fn file_calls(text: &str) -> Vec<&'static str> {
    let code = code(text);
    let is_called = |call: &&str| {
        code.match_indices(*call).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    FILE_CALLS.into_iter().filter(is_called).collect()
}

/// Only `src/folder` knows how to create files in folders to which other users can write.
#[test]
fn all_files_are_created_by_one_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "python/src"] {
        rust_files(&root.join(folder), &mut files);
    }
    assert!(files.len() > 300, "the files were found");
    let mut found = Vec::new();
    for path in files {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap();
        let allowed = MAY_CALL.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, calls)| calls);
        let calls = file_calls(&fs::read_to_string(&path).unwrap());
        let forbidden = calls.into_iter().filter(|call| !allowed.contains(call) && !name.starts_with("src/folder/"));
        found.extend(forbidden.map(|call| format!("{name}: {call}")));
    }
    assert!(found.is_empty(), "call a function of src/folder instead: {found:#?}");
    assert_eq!(file_calls("std::fs::write(path, text);"), ["fs::write"]);
    assert_eq!(
        file_calls("// fs::write\nmy_fs::write(a); self.file.write(b);\n#[cfg(test)]\nmod t {\nfs::write\n}"),
        [""; 0]
    );
}
