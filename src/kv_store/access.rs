//! Options that say who may connect, and the names of users and groups in them.

use nix::unistd::{Group, User};
use zero_kv::server::SocketAccess;

/// None of them is for --tcp.
#[derive(clap::Args)]
pub(crate) struct AccessArgs {
    /// Permissions of the socket, in octal; connecting takes those to write [default: 0660]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// User who owns the socket, a name or a number; takes root [default: the server's]
    #[arg(long, value_name = "USER", value_parser = uid)]
    owner: Option<u32>,
    /// Group of the socket, a name or a number: one that the server's user is in, unless that is root
    #[arg(long, value_name = "GROUP", value_parser = gid)]
    group: Option<u32>,
    /// Serve processes of these users, names or numbers, and of --allow-gid; close all other
    /// connections, root's too
    #[arg(long, value_name = "USER", value_parser = uid, value_delimiter = ',')]
    allow_uid: Vec<u32>,
    /// The same of groups: those whose effective group it is. Members of a group, as `id` lists
    /// them, are admitted by --group instead
    #[arg(long, value_name = "GROUP", value_parser = gid, value_delimiter = ',')]
    allow_gid: Vec<u32>,
    /// Hand the file to nobody: clients that may connect can otherwise map it, and look up in it themselves
    #[arg(long)]
    pub(crate) no_direct: bool,
}

impl From<AccessArgs> for SocketAccess {
    fn from(args: AccessArgs) -> Self {
        SocketAccess {
            mode: args.mode,
            owner: args.owner,
            group: args.group,
            allow_uids: args.allow_uid,
            allow_gids: args.allow_gid,
        }
    }
}

fn mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or("three octal digits are wanted, such as 0660 (owner and group) or 0666 (everybody)")
}

fn uid(text: &str) -> Result<u32, String> {
    id(text, "passwd", || Ok(User::from_name(text)?.map(|user| user.uid.as_raw())))
}

fn gid(text: &str) -> Result<u32, String> {
    id(text, "group", || Ok(Group::from_name(text)?.map(|group| group.gid.as_raw())))
}

/// A number as it is, a name as the system knows it.
fn id(text: &str, database: &str, look_up: impl Fn() -> nix::Result<Option<u32>>) -> Result<u32, String> {
    // The system's -1 stands for no change.
    if let Some(id) = text.parse().ok().filter(|id| *id != u32::MAX) {
        return Ok(id);
    }
    match look_up() {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(format!("no such name: give one that `getent {database}` lists, or a number")),
        Err(error) => Err(format!("cannot be looked up: {error}: give a number")),
    }
}
