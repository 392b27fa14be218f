//! Links, quotations, and figures in the documents refer to things that exist.

mod documents {
    mod figures;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 13] = [
    "",
    "benches/peers",
    "datasets",
    "docs",
    "docs/cookbook",
    "docs/decisions",
    "docs/operations",
    "examples",
    "fuzz",
    "models",
    "python",
    "tests",
    "tests/vectors",
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the files in a folder, and in all folders below it, whose names end in `extension`.
fn files_below(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let files = FOLDERS.iter().flat_map(|folder| fs::read_dir(repository().join(folder)).unwrap());
    files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|found| found == "md")).collect()
}

/// Returns the lines of a document outside fenced blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the anchors that GitHub gives to the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let is_kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Returns the targets of the links of a document.
fn links(text: &str) -> Vec<&str> {
    let parts = prose(text).flat_map(|line| line.split("](").skip(1));
    parts.filter_map(|part| part.split_once(')')).map(|(target, _)| target).collect()
}

#[test]
fn documents_link_to_files_and_headings_that_exist() {
    let mut checked = 0;
    for document in documents() {
        let text = read(&document);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: no file for the link {link}", document.display());
            let has_anchor = anchor.is_empty() || anchors(&read(&target)).contains(anchor);
            assert!(has_anchor, "{}: no heading for the link {link}", document.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked} links");
}

/// The list is how a reader finds a decision.
#[test]
fn the_list_of_decisions_has_every_page_with_its_question() {
    let folder = repository().join("docs/decisions");
    let list = read(&folder.join("README.md"));
    let mut pages = 0;
    for page in documents().into_iter().filter(|path| path.parent() == Some(&folder) && !path.ends_with("README.md")) {
        let text = read(&page);
        let question = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        assert!(question.ends_with('?'), "{}: found the title {question:?}, expected a question", page.display());
        let line = format!("| [{question}]({}) |", page.file_name().unwrap().display());
        assert_eq!(
            list.matches(&line).count(),
            1,
            "docs/decisions/README.md: expected one line that begins with {line}"
        );
        pages += 1;
    }
    assert_eq!(list.matches("| [").count(), pages, "docs/decisions/README.md: a line without a page");
    assert!(pages > 50, "{pages} pages");
}

/// The folders whose files the documents name by paths from the root of the repository.
const NAMED_FOLDERS: [&str; 10] =
    [".ci/", "benches/", "docs/", "examples/", "fuzz/", "models/", "packaging/", "python/", "src/", "tests/"];

/// Returns the paths that a document quotes in prose, such as `src/store/map.rs`. `NAME` stands for any name.
fn named_paths(text: &str) -> Vec<&str> {
    let is_path = |quoted: &&str| {
        NAMED_FOLDERS.iter().any(|folder| quoted.starts_with(folder))
            && quoted.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c))
            && !quoted.contains("NAME")
    };
    prose(text).flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_path).collect()
}

#[test]
fn files_that_documents_name_exist() {
    let mut checked = 0;
    for document in documents() {
        for path in named_paths(&read(&document)) {
            let is_found = [repository(), document.parent().unwrap()].iter().any(|root| root.join(path).exists());
            assert!(is_found, "{}: no file {path}", document.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked} paths");
}

#[test]
fn decisions_that_sources_name_exist() {
    let mut files = Vec::new();
    for folder in ["src", "python/src"] {
        files_below(&repository().join(folder), "rs", &mut files);
    }
    let mut checked = 0;
    for file in files {
        for path in
            read(&file).lines().flat_map(|line| line.split('`')).filter(|part| part.starts_with("docs/decisions/"))
        {
            assert!(repository().join(path).exists(), "{}: no file {path}", file.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} paths");
}

/// Without `--locked`, `cargo install` replaces the tested versions of dependencies with newer ones.
#[test]
fn documents_install_the_tested_versions_of_dependencies() {
    let mut checked = 0;
    for document in documents() {
        for line in read(&document).lines().filter(|line| line.contains("cargo install ")) {
            assert!(line.contains("cargo install --locked "), "{}: {line}", document.display());
            checked += 1;
        }
    }
    assert!(checked > 0);
}

/// Returns the sources, with string literals that continue on the next line joined.
fn sources() -> String {
    let mut files = Vec::new();
    files_below(&repository().join("src"), "rs", &mut files);
    let mut joined = String::new();
    for file in files {
        for line in read(&file).lines() {
            match line.strip_suffix('\\') {
                Some(continued) => joined.push_str(continued.trim_start()),
                None => joined.extend([line.trim_start(), "\n"]),
            }
        }
    }
    joined
}

/// A symptom that consists only of a quotation is a message of a program; `…` stands for the variable parts.
#[test]
fn the_troubleshooting_table_quotes_messages_that_exist() {
    let text = read(&repository().join("docs/FAQ.md"));
    let (_, section) = text.split_once("## Troubleshooting").unwrap();
    let sources = sources();
    let symptoms =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | ")).map(|(quote, _)| quote);
    let quotes: Vec<&str> = symptoms.filter(|symptom| !symptom.contains('`')).collect();
    for quote in &quotes {
        for part in quote.split('…').map(str::trim).filter(|part| !part.is_empty()) {
            assert!(sources.contains(part), "docs/FAQ.md: no message contains {part:?} of {quote:?}");
        }
    }
    assert!(quotes.len() > 20, "{} messages", quotes.len());
}
