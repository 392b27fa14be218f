//! The options of programs that are clients, as messages of the library name them.

use crate::setting::{Setting, name_settings};

/// Makes the messages of this program name its options.
pub fn name_client_options() {
    name_settings(|setting| (setting == Setting::ServerUser).then_some("--server-user"));
}
