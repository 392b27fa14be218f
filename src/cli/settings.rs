//! The names that messages of the library use for the options of client programs.

use crate::setting::{Setting, name_settings};

/// Makes messages of the library use the names of this program's options, such as `--server-user`.
pub fn name_client_options() {
    name_settings(|setting| (setting == Setting::ServerUser).then_some("--server-user"));
}
