use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rustix::fs::mknodat;

use super::*;

/// The kinds of files that another user can put at a name. Returns the file that must not change, if there is one.
const PLANTED: [&str; 7] = ["nothing", "file", "link", "dangling link", "link to a folder", "hard link", "FIFO"];

fn plant(folder: &Path, what: &str) -> PathBuf {
    let (place, victim) = (folder.join("name"), folder.join("victim"));
    fs::write(&victim, "precious").unwrap();
    fs::create_dir(folder.join("victims")).unwrap();
    match what {
        "nothing" => {}
        "file" => fs::write(&place, "other").unwrap(),
        "link" => symlink(&victim, &place).unwrap(),
        "dangling link" => symlink(folder.join("victims/new"), &place).unwrap(),
        "link to a folder" => symlink(folder.join("victims"), &place).unwrap(),
        "hard link" => fs::hard_link(&victim, &place).unwrap(),
        _ => mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
    }
    victim
}

fn with_each(test: impl Fn(&str, &Folder)) {
    for what in PLANTED {
        let folder = tempfile::tempdir().unwrap();
        let victim = plant(folder.path(), what);
        test(what, &Folder::open(folder.path()).unwrap());
        assert_eq!(fs::read(victim).unwrap(), b"precious", "{what}");
        assert_eq!(fs::read_dir(folder.path().join("victims")).unwrap().count(), 0, "{what}");
    }
}

#[test]
fn a_written_file_replaces_whatever_has_its_name() {
    with_each(|what, folder| {
        folder.write("name", b"new").unwrap();
        assert_eq!(fs::read(folder.path().join("name")).unwrap(), b"new", "{what}");
        assert!(fs::symlink_metadata(folder.path().join("name")).unwrap().is_file(), "{what}");
        folder.write_durably("name", b"newer").unwrap();
        assert_eq!(folder.read("name", 5).unwrap(), b"newer");
        assert!(folder.read("name", 4).is_err(), "more bytes than expected are not read");
        assert_eq!(folder.names().unwrap().len(), 3, "{what}: {:?}", folder.names());
    });
}

#[test]
fn a_file_is_created_only_if_nothing_has_its_name() {
    for is_hidden in [false, true] {
        with_each(|what, folder| {
            let new = || {
                let mut new = folder.new_file().unwrap();
                if is_hidden {
                    let (file, hidden) = with_hidden_name(|hidden| folder.create(hidden)).unwrap();
                    assert!(is_hidden_name(&hidden));
                    new = new.with_hidden(file, hidden);
                }
                new
            };
            for created in [folder.create("name").map(drop), new().create("name")] {
                if what != "nothing" {
                    assert_eq!(created.unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{what}");
                }
            }
            new().replace("name").unwrap();
            assert_eq!(folder.names().unwrap().len(), 3, "{what}: {:?}", folder.names());
        });
    }
}

#[test]
fn only_a_file_that_an_earlier_run_created_is_continued() {
    with_each(|what, folder| {
        assert_eq!(folder.continue_file("name").unwrap().is_some(), what == "file", "{what}");
    });
    let folder = tempfile::tempdir().unwrap();
    let folder = Folder::open(folder.path()).unwrap();
    let file = folder.create("name").unwrap();
    assert!(folder.continue_file("name").unwrap().is_some());
    for mode in [0o666, 0o600, 0o777, 0o4755] {
        file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
        let is_new = file.metadata().unwrap().mode() == folder.create_unnamed().unwrap().metadata().unwrap().mode();
        assert_eq!(folder.continue_file("name").unwrap().is_some(), is_new, "{mode:o}");
    }
}

#[test]
fn a_lock_file_is_a_regular_file_with_one_name() {
    with_each(|what, folder| match folder.open_lock_file("name") {
        Ok(_) => {
            assert!(["nothing", "file"].contains(&what), "{what}");
            assert_eq!(folder.stat("name").unwrap().st_mode & 0o7777, 0o600, "{what}");
        }
        Err(error) => {
            let expected = match what {
                "hard link" => "has 2 names",
                "FIFO" => "is not a regular file",
                _ => "is a symbolic link, which is not followed",
            };
            assert!(error.to_string().contains(expected), "{what}: {error}");
        }
    });
}

#[test]
fn only_regular_files_are_opened() {
    with_each(|what, folder| {
        let is_regular = ["file", "hard link"].contains(&what);
        assert_eq!(folder.open_file("name").is_ok(), is_regular, "{what}");
        assert_eq!(folder.read("name", 100).is_ok(), is_regular, "{what}");
        assert_eq!(folder.has_own_file("name").unwrap(), is_regular, "{what}");
    });
}

#[test]
fn a_link_to_a_folder_is_no_subfolder_and_no_name_leads_out_of_a_folder() {
    with_each(|what, folder| {
        assert_eq!(folder.create_subfolder("name").is_ok(), what == "nothing", "{what}");
        assert_eq!(folder.subfolder("name").is_ok(), what == "nothing", "{what}");
        if what.starts_with("link to") {
            assert!(folder.subfolder("name").unwrap_err().to_string().contains("symbolic link"));
        }
        let inner = folder.subfolder("victims").unwrap();
        for name in ["..", ".", "", "../victim", "/etc/passwd"] {
            assert!(inner.subfolder(name).is_err() && inner.create_subfolder(name).is_err(), "{name}");
            assert!(inner.open_file(name).is_err() && inner.create(name).is_err(), "{name}");
            assert!(inner.write(name, b"x").is_err() && inner.open_lock_file(name).is_err(), "{name}");
            assert!(inner.continue_file(name).unwrap().is_none(), "{name}");
        }
        assert_eq!(inner.names().unwrap().len(), 0, "{what}");
    });
}

#[test]
fn a_folder_that_was_replaced_by_a_link_stays_open() {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::create_all(&parent.path().join("a")).unwrap();
    fs::rename(parent.path().join("a"), parent.path().join("b")).unwrap();
    fs::create_dir(parent.path().join("other")).unwrap();
    symlink("other", parent.path().join("a")).unwrap();
    folder.write_durably("name", b"new").unwrap();
    folder.replace_with_link(&folder, "name", "second").unwrap();
    folder.replace_with_link(&folder, "name", "second").unwrap();
    assert_eq!(fs::read(parent.path().join("b/second")).unwrap(), b"new");
    assert_eq!(folder.names().unwrap().len(), 2);
    assert_eq!(fs::read_dir(parent.path().join("other")).unwrap().count(), 0);
}

#[test]
fn a_path_is_walked_through_links_of_trusted_users() {
    let parent = tempfile::tempdir().unwrap();
    fs::create_dir_all(parent.path().join("a/b")).unwrap();
    symlink("a/b", parent.path().join("link")).unwrap();
    symlink("none", parent.path().join("dangling")).unwrap();
    fs::write(parent.path().join("file"), "").unwrap();
    let folder = Folder::create_all(&parent.path().join("link/./c/../d/e")).unwrap();
    folder.write("name", b"new").unwrap();
    assert_eq!(fs::read(parent.path().join("a/b/d/e/name")).unwrap(), b"new");
    for name in ["none", "dangling", "file", "file/a"] {
        assert!(Folder::open(&parent.path().join(name)).is_err(), "{name}");
    }
    assert!(Folder::create_all(&parent.path().join("dangling")).is_err());
    assert!(!parent.path().join("none").exists());
    // Only root can create a link of another user.
    let link = parent.path().join("link");
    if std::os::unix::fs::lchown(&link, Some(4321), Some(4321)).is_ok() {
        for (mode, is_followed) in [(0o755, true), (0o775, false), (0o2775, false), (0o777, false), (0o1777, false)] {
            fs::set_permissions(parent.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Folder::open(&link).is_ok(), is_followed, "{mode:o}");
            assert_eq!(Folder::create_all(&link.join("new")).is_ok(), is_followed, "{mode:o}");
            // A link at the path of an output itself.
            let error = Folder::create_all(&link).unwrap_err().to_string();
            assert!(error.contains("link is a symbolic link of user 4321"), "{mode:o}: {error}");
        }
        // Also if the folder above belongs to the user of the link.
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(parent.path(), Some(4321), None).unwrap();
        assert!(Folder::open(&link).is_ok() && Folder::create_all(&link).is_err());
    }
}

#[test]
fn the_path_of_an_output_names_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["new/", "new/.", "..", "."] {
        let error = Folder::of(&folder.path().join(name)).unwrap_err().to_string();
        assert!(error.contains("a file"), "{name}: {error}");
    }
    assert!(Folder::of(Path::new("")).is_err() && Folder::of(Path::new("/")).is_err());
    assert_eq!(Folder::of(Path::new("x")).unwrap().1, "x");
}

#[test]
fn links_in_a_folder_where_everybody_can_write_lead_to_the_same_folders_as_the_kernel_follows_them() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir_all(folder.path().join("target/below")).unwrap();
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let links = [
        ("relative", "../target"),
        ("chain", "relative/below"),
        ("longer", "./chain/../below/.."),
        ("self", "."),
        ("dangling", "../none"),
        ("loop", "loop"),
        ("ring", "circle/x"),
        ("circle", "ring"),
        ("file", "../file"),
    ];
    for (name, target) in links {
        symlink(target, shared.join(name)).unwrap();
    }
    symlink(folder.path().join("target"), shared.join("absolute")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for name in links.iter().map(|(name, _)| *name).chain(["absolute", "absolute/below", "none"]) {
        let path = shared.join(name);
        match (Folder::open(&path), fs::metadata(&path)) {
            (Ok(opened), Ok(expected)) => {
                let found = fstat(&opened.fd).unwrap();
                assert_eq!((found.st_dev, found.st_ino), (expected.dev(), expected.ino()), "{name}");
            }
            (Err(error), Err(expected)) => assert_eq!(error.raw_os_error(), expected.raw_os_error(), "{name}"),
            (Err(error), Ok(expected)) => {
                assert!(expected.is_file() && error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()), "{name}");
            }
            (Ok(_), Err(error)) => panic!("{name}: {error}"),
        }
    }
}
