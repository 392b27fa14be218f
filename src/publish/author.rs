//! Who creates a document, for people who ask later.

use nix::unistd::{Uid, User};

/// The program that creates documents, with its version.
pub(super) const TOOL: &str = concat!("zero-kv ", env!("CARGO_PKG_VERSION"));

/// Returns the user and the machine of this process as `USER@HOST`, for example `nightly@build-7`. A user without a
/// name is a number.
pub(super) fn author() -> String {
    let uid = Uid::effective();
    let user = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}
