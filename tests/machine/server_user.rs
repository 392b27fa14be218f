//! Clients reject a server that another user may have put in place of the right one, before they send anything.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Uid;
use tempfile::TempDir;
use zero_kv::client::{AsyncClient, AsyncPool, Client, ClientError, Options, Pool, PoolOptions};

use super::requirements::{OTHER, root};
use crate::helpers::frames::answer;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::PATIENCE;

/// A user who owns nothing on this machine.
const THIRD: u32 = 4322;

/// Listens as another user, because the kernel reports the user who called `listen`. Sends one response on each
/// connection, and returns the bytes that arrived on it until its end.
fn serve_as(user: u32, address: SocketAddr) -> thread::JoinHandle<Vec<u8>> {
    let listen = move || {
        let user = Uid::from_raw(user);
        // Changes the user of this thread only.
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        UnixListener::bind_addr(&address).unwrap()
    };
    let listener = thread::spawn(listen).join().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut arrived, mut room) = (Vec::new(), [0; 64]);
        while let Ok(len_bytes @ 1..) = stream.read(&mut room) {
            arrived.extend_from_slice(&room[..len_bytes]);
            let _ = stream.write_all(&answer(1, b""));
        }
        arrived
    })
}

/// Creates a folder in `/run`, where only root can write, and in it a folder with this owner and mode.
fn below_run(owner: u32, mode: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/run").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let inner = folder.path().join("socket");
    fs::create_dir(&inner).unwrap();
    chown(&inner, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&inner, Permissions::from_mode(mode)).unwrap();
    (folder, inner)
}

fn on_path(path: &Path) -> SocketAddr {
    SocketAddr::from_pathname(path).unwrap()
}

fn options_with_server_user(user: &str) -> Options {
    Options { server_user: Some(user.to_owned()), ..Options::default() }
}

/// Returns the error of a client that connects to a server of another user. The server must get no byte.
fn rejection<T>(path: &Path, connect: impl FnOnce(&Path) -> Result<T, ClientError>) -> String {
    let server = serve_as(OTHER, on_path(path));
    let Err(error) = connect(path) else { panic!("the server was accepted") };
    assert!(matches!(error, ClientError::UntrustedServer { uid: OTHER, .. }), "{error:?}");
    assert_eq!(server.join().unwrap(), b"", "the client sent bytes");
    fs::remove_file(path).unwrap();
    error.to_string()
}

fn accepted(address: SocketAddr, path: &Path, options: &Options) {
    let server = serve_as(OTHER, address);
    assert_eq!(Client::connect_with(path, options).unwrap().get(7).unwrap(), None);
    assert_eq!(server.join().unwrap().len(), 16, "one request");
}

pub(crate) fn every_client_rejects_a_server_of_another_user_where_others_can_write() -> Result<(), Missing> {
    root()?;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let path = &folder.path().join("s.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let message = rejection(path, |path| Client::connect(path));
    for part in ["runs as user 4321", "where root or this process's user 0 was expected", "other users can write to"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.contains("--server-user or ZERO_KV_SERVER_USER"), "{message}");
    rejection(path, |path| runtime.block_on(AsyncClient::connect(path)));
    rejection(path, |path| Pool::connect(path));
    rejection(path, |path| runtime.block_on(AsyncPool::connect(path)));
    // Rejects names of other users, and a name that no user has.
    let message = rejection(path, |path| Client::connect_with(path, &options_with_server_user("4322")));
    assert!(message.contains("where 4322, root, or this process's user 0 was expected"), "{message}");
    let message = rejection(path, |path| Client::connect_with(path, &options_with_server_user("no such user")));
    assert!(message.contains("there is no user \"no such user\""), "{message}");
    let pool = PoolOptions { client: options_with_server_user("daemon"), ..PoolOptions::default() };
    rejection(path, |path| Pool::connect_with(path, &pool));

    accepted(on_path(path), path, &options_with_server_user("4321"));
    Ok(())
}

pub(crate) fn a_direct_client_checks_the_user_of_its_own_connection() -> Result<(), Missing> {
    root()?;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let path = folder.path().join("s.sock");
    let server = serve_as(OTHER, on_path(&path));
    // Direct mode uses the options of the client, which named the first server's user.
    let client = Client::connect_with(&path, &options_with_server_user("4321")).unwrap();
    fs::remove_file(&path).unwrap();
    let impostor = serve_as(THIRD, on_path(&path));
    let error = client.direct().unwrap_err();
    assert!(matches!(error, ClientError::UntrustedServer { uid: THIRD, .. }), "{error:?}");
    assert_eq!(impostor.join().unwrap(), b"", "the client sent bytes");
    drop(client);
    server.join().unwrap();
    Ok(())
}

pub(crate) fn a_server_of_another_user_is_accepted_where_only_that_user_and_root_can_write() -> Result<(), Missing> {
    root()?;
    for mode in [0o755, 0o700] {
        let (_folder, inner) = below_run(OTHER, mode);
        let path = inner.join("s.sock");
        accepted(on_path(&path), &path, &Options::default());
        // If the server's user is named, the directory's owner does not matter.
        fs::remove_file(&path).unwrap();
        let message = rejection(&path, |path| Client::connect_with(path, &options_with_server_user("4322")));
        assert!(message.contains("where 4322, root,"), "{message}");
    }
    // Directories where the group, everybody, or a user other than root and the server's user can write.
    for (owner, mode) in [(OTHER, 0o775), (OTHER, 0o1777), (THIRD, 0o777)] {
        let (_folder, inner) = below_run(owner, mode);
        let message = rejection(&inner.join("s.sock"), |path| Client::connect(path));
        assert!(message.contains(&format!("other users can write to {}", inner.display())), "{message}");
    }
    Ok(())
}

pub(crate) fn a_link_from_a_directory_where_others_can_write_is_not_trusted() -> Result<(), Missing> {
    root()?;
    let (_folder, inner) = below_run(OTHER, 0o755);
    let (_open, open) = below_run(0, 0o1777);
    std::os::unix::fs::symlink(&inner, open.join("link")).unwrap();
    let server = serve_as(OTHER, on_path(&inner.join("s.sock")));
    let error = Client::connect(open.join("link/s.sock")).unwrap_err();
    assert!(error.to_string().contains(&format!("other users can write to {}", open.display())), "{error}");
    assert_eq!(server.join().unwrap(), b"");
    Ok(())
}

pub(crate) fn another_users_server_with_an_abstract_name_must_be_named() -> Result<(), Missing> {
    root()?;
    let name = format!("zero-kv-server-user-{}", std::process::id());
    let (path, address) = (format!("@{name}"), SocketAddr::from_abstract_name(&name).unwrap());
    let server = serve_as(OTHER, address.clone());
    let message = Client::connect(&path).unwrap_err().to_string();
    assert!(message.contains("any user can serve under an abstract name"), "{message}");
    assert_eq!(server.join().unwrap(), b"");
    accepted(address, Path::new(&path), &options_with_server_user("4321"));
    Ok(())
}
