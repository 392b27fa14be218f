//! Sockets that systemd, or who follows its protocol, hands in: as many as LISTEN_FDS
//! says, from descriptor 3 on, for the process LISTEN_PID.

use anyhow::{anyhow, bail};
use listenfd::ListenFd;
use zero_kv::server::Inherited;

use super::args::PlaceArgs;

/// Takes the sockets out of the environment. To be called before there are threads.
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

/// An error if the command line asks for other places than those of these sockets.
pub(crate) fn check(inherited: &Inherited, places: &PlaceArgs) -> anyhow::Result<()> {
    if let (Some(there), Some(wanted)) = (inherited.unix_path(), &places.socket)
        && there != *wanted
    {
        bail!(
            "a socket on {} was handed in, and --socket is {}: leave --socket out, or change ListenStream= of the .socket unit",
            there.display(),
            wanted.display()
        );
    }
    if let (Some(there), Some(wanted)) = (inherited.tcp_address(), places.tcp)
        && there != wanted
    {
        bail!(
            "a socket on {there} was handed in, and --tcp is {wanted}: leave --tcp out, or change ListenStream= of the .socket unit"
        );
    }
    Ok(())
}
