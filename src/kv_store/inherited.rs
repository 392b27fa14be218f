//! Takes over sockets that systemd, or another program that follows systemd's protocol, passes to this process. The
//! environment variable LISTEN_FDS contains the number of sockets, whose file descriptors begin at 3. LISTEN_PID
//! contains the ID of the process that the sockets are for.

use anyhow::{anyhow, bail};
use listenfd::ListenFd;
use zero_kv::server::Inherited;

use super::args::ListenArgs;

/// Takes over the sockets that environment variables announce. Must be called before the process starts a thread:
/// the function removes these variables, and another thread could read the environment meanwhile.
pub(crate) fn take() -> anyhow::Result<Inherited> {
    let mut sockets = ListenFd::from_env();
    let mut inherited = Inherited::default();
    for index in 0..sockets.len() {
        let added = if let Ok(Some(socket)) = sockets.take_unix_listener(index) {
            inherited.add_unix(socket)
        } else if let Ok(Some(socket)) = sockets.take_tcp_listener(index) {
            inherited.add_tcp(socket)
        } else {
            Err("neither a Unix nor a TCP stream socket".to_owned())
        };
        added.map_err(|problem| anyhow!("socket {} of {} in LISTEN_FDS: {problem}", index + 1, sockets.len()))?;
    }
    Ok(inherited)
}

/// Checks the options against the inherited sockets: `--socket` and `--tcp`, if given, must be the addresses of these
/// sockets. With `--tcp-exposed`, there must be a TCP socket or a TLS port (`has_tls`).
pub(crate) fn check(inherited: &Inherited, listen: &ListenArgs, has_tls: bool) -> anyhow::Result<()> {
    if let (Some(passed), Some(requested)) = (inherited.unix_path(), &listen.socket)
        && passed != *requested
    {
        bail!(
            "systemd passed a socket on {}, but --socket is {}: leave --socket out, or change ListenStream= of the .socket unit",
            passed.display(),
            requested.display()
        );
    }
    if let (Some(passed), Some(requested)) = (inherited.tcp_address(), listen.tcp)
        && passed != requested
    {
        bail!(
            "systemd passed a socket on {passed}, but --tcp is {requested}: leave --tcp out, or change ListenStream= of the .socket unit"
        );
    }
    if listen.tcp_exposed && !has_tls && listen.tcp.or(inherited.tcp_address()).is_none() {
        bail!(
            "--tcp-exposed is given, but the server has no TCP socket: add --tcp ADDRESS, or leave --tcp-exposed out"
        );
    }
    Ok(())
}
