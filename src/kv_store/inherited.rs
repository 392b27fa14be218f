//! Takes over sockets that systemd, or another program that follows systemd's protocol, passes to this process. The
//! environment variable LISTEN_FDS contains the number of sockets, whose file descriptors begin at 3. LISTEN_PID
//! contains the ID of the process that the sockets are for.

use std::env;

use anyhow::{anyhow, bail};
use listenfd::ListenFd;
use zero_kv::server::Inherited;

use super::args::ListenArgs;

const SOCKETS_MAX: i32 = 2;
const COUNT: &str = "LISTEN_FDS";
/// The variable that has the first descriptor if it is not 3, an extension of systemd's protocol.
const FIRST: &str = "LISTEN_FDS_FIRST_FD";
const FIRST_MIN: i32 = 3;

/// Takes over the sockets that environment variables announce. Must be called before the process starts a thread or
/// opens a file: the function removes these variables, and another thread could read the environment meanwhile. A wrong
/// number of sockets would include descriptors of the process itself, which would be closed when they are rejected.
pub(crate) fn take() -> anyhow::Result<Inherited> {
    check_variables()?;
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

/// Checks the variables, unless they are for another process. `ListenFd` allocates memory for as many sockets as
/// LISTEN_FDS announces, and adds their number to the first descriptor.
fn check_variables() -> anyhow::Result<()> {
    let is_ours = match env::var("LISTEN_PID") {
        Ok(pid) => pid.is_empty() || pid.parse() == Ok(std::process::id()),
        Err(env::VarError::NotPresent) => true,
        Err(env::VarError::NotUnicode(_)) => false,
    };
    if !is_ours || env::var_os(COUNT).is_none() {
        return Ok(());
    }
    let check = |name: &str, min: i32, max: i32, what: &str| {
        let Some(text) = env::var_os(name) else { return Ok(()) };
        match text.to_str().and_then(|text| text.parse().ok()) {
            Some(number) if (min..=max).contains(&number) => Ok(()),
            _ => Err(anyhow!(
                "{name} is {text:?}, where {what} was expected: unset it, or change the program that passes sockets"
            )),
        }
    };
    check(COUNT, 0, SOCKETS_MAX, "a number of sockets from 0 to 2")?;
    check(FIRST, FIRST_MIN, i32::MAX - SOCKETS_MAX, "a descriptor from 3 on")
}

/// Checks the options against the inherited sockets: `--socket` and `--tcp`, if given, must be the addresses of these
/// sockets. With `--tcp-exposed`, there must be a TCP socket or a TLS port (`has_tls`).
pub(crate) fn check(inherited: &Inherited, listen: &ListenArgs, has_tls: bool) -> anyhow::Result<()> {
    if let (Some(passed), Some(requested)) = (inherited.unix_path(), &listen.socket)
        && passed != *requested
    {
        bail!(
            "systemd passed a socket on {}, but --socket is {}: leave --socket out, or change ListenStream= of the \
             .socket unit",
            passed.display(),
            requested.display()
        );
    }
    if let (Some(passed), Some(requested)) = (inherited.tcp_address(), listen.tcp)
        && passed != requested
    {
        bail!(
            "systemd passed a socket on {passed}, but --tcp is {requested}: leave --tcp out, or change ListenStream= \
             of the .socket unit"
        );
    }
    if listen.tcp_exposed && !has_tls && listen.tcp.or(inherited.tcp_address()).is_none() {
        bail!(
            "--tcp-exposed is given, but the server has no TCP socket: add --tcp ADDRESS, or leave --tcp-exposed out"
        );
    }
    Ok(())
}
