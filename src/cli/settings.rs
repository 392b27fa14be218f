//! Makes messages of the library contain the names of command-line options.

use crate::setting::{Setting, name_settings};

/// Makes messages of the library name the option `--server-user` instead of the field `Options::server_user`.
pub fn name_client_options() {
    name_settings(|setting| (setting == Setting::ServerUser).then_some("--server-user"));
}
