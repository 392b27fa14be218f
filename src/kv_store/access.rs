//! Defines the options that control which processes may connect to the Unix socket, and parses the users and groups
//! that these options name.

use nix::unistd::{Group, User};
use zero_kv::server::SocketAccess;

// None of these options affects --tcp.
#[derive(clap::Args)]
pub(crate) struct AccessArgs {
    /// Set the permissions of the socket, in octal; a client needs write permission to connect [default: 0660]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
    /// Set the owner of the socket, by user name or UID; needs root [default: the server's user]
    #[arg(long, value_name = "USER", value_parser = parse_uid)]
    owner: Option<u32>,
    /// Set the group of the socket, by group name or GID; the server must run as a member of the group or as root
    #[arg(long, value_name = "GROUP", value_parser = parse_gid)]
    group: Option<u32>,
    /// Serve only processes of these users (names or numbers), and of the groups that --allow-gid lists; close all
    /// other connections, even from root
    #[arg(long, value_name = "USER", value_parser = parse_uid, value_delimiter = ',')]
    allow_uid: Vec<u32>,
    /// Serve only processes whose effective group is one of these (names or numbers), and processes of the users that
    /// --allow-uid lists. Supplementary groups do not count; to admit all members of a group, use --group
    #[arg(long, value_name = "GROUP", value_parser = parse_gid, value_delimiter = ',')]
    allow_gid: Vec<u32>,
    /// Reject requests for direct mode, in which a client maps the file and looks keys up itself
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

fn parse_mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or("expected three octal digits, such as 0660 (owner and group) or 0666 (everybody)")
}

fn parse_uid(text: &str) -> Result<u32, String> {
    parse_id(text, "passwd", || Ok(User::from_name(text)?.map(|user| user.uid.as_raw())))
}

fn parse_gid(text: &str) -> Result<u32, String> {
    parse_id(text, "group", || Ok(Group::from_name(text)?.map(|group| group.gid.as_raw())))
}

/// Returns the ID of a user or group: `text` itself if it is a number, otherwise the result of `look_up`. An error
/// names `database`, the database of getent(1) that lists the valid names.
fn parse_id(text: &str, database: &str, look_up: impl Fn() -> nix::Result<Option<u32>>) -> Result<u32, String> {
    // For chown, u32::MAX (-1) means "do not change".
    if let Some(id) = text.parse().ok().filter(|id| *id != u32::MAX) {
        return Ok(id);
    }
    match look_up() {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(format!("no such name: pass a name that `getent {database}` lists, or a number")),
        Err(error) => Err(format!("the name cannot be looked up: {error}: pass a number")),
    }
}
