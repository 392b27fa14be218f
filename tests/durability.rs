//! Power losses and I/O errors: after any failure at any moment, the old file or the new file is there, complete.
//!
//! A seed selects the cases. Each test prints the seed, and `ZERO_KV_SEED` sets it. By default the tests run for a few
//! seconds; with `ZERO_KV_FAULTS_ALL=1`, every system call of every case fails with every error.

use testkit as helpers;

mod durability {
    pub(crate) mod cases;
    pub(crate) mod crash;
    pub(crate) mod errors;
    pub(crate) mod faults;
    pub(crate) mod power_loss;
    pub(crate) mod published;
    pub(crate) mod record;
    pub(crate) mod swaps;
}

use std::io::{self, Write};
use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

use durability::{errors, power_loss, published, swaps};
use helpers::random::{Random, seed};
use helpers::trials::trials;

fn main() -> ExitCode {
    let trials = trials![
        errors::an_error_of_any_system_call_is_reported_and_changes_nothing,
        power_loss::replaying_a_recording_gives_the_actual_files,
        power_loss::a_missing_or_late_sync_is_detected,
        power_loss::an_operation_that_the_recorder_does_not_know_is_an_error,
        power_loss::after_a_power_loss_at_any_moment_the_old_or_the_new_file_is_complete,
        published::a_node_in_which_a_system_call_fails_keeps_a_complete_generation_and_converges,
        published::a_node_killed_at_any_call_of_a_swap_serves_the_old_or_the_new_generation_and_converges,
        published::a_node_that_cannot_serve_a_cached_generation_when_it_starts_keeps_the_file,
        swaps::a_swap_in_which_a_system_call_fails_keeps_the_old_file_and_the_next_one_is_served,
    ];
    run(&Arguments::from_args(), trials).exit_code()
}

/// Prints a line, even if the test passes.
fn report(text: &str) {
    // The harness shows the output of `println!` only for tests that fail.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns a generator whose seed is printed.
fn random(what: &str) -> Random {
    Random(seed(what))
}

/// Returns whether the environment requests all cases.
fn wants_all() -> bool {
    std::env::var_os("ZERO_KV_FAULTS_ALL").is_some_and(|value| value != "0")
}
