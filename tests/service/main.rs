//! What docs/OPERATIONS.md promises about kv_store as a service: inherited sockets,
//! notifications to the service manager, and unit files.

#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;

mod notify;
mod sockets;
mod units;

use std::process::ExitCode;

use clients::trials;
use libtest_mimic::{Arguments, run};

fn main() -> ExitCode {
    let trials = trials![
        notify::a_reload_begins_and_ends_with_a_word_whether_the_file_is_served_or_not,
        notify::a_thread_that_hangs_ends_the_signs_of_life_until_it_goes_on,
        notify::the_service_manager_is_told_when_the_server_answers_and_when_it_stops,
        notify::the_watchdog_is_told_that_the_server_lives_idle_or_busy,
        sockets::a_restart_behind_a_socket_that_is_handed_in_fails_no_connection,
        sockets::sockets_for_another_process_are_not_taken,
        sockets::systemd_socket_activate_starts_a_server,
        sockets::unix_and_tcp_sockets_that_are_handed_in_are_served_and_left_there,
        sockets::what_is_handed_in_and_cannot_be_served_is_named,
        units::systemd_finds_nothing_wrong_with_the_units,
        units::the_service_is_shut_in,
    ];
    run(&Arguments::from_args(), trials).exit_code()
}
