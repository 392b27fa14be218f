//! Promises whose tests need something of the machine: root, leases, mounts, user namespaces, a second disk, or promtool.
//!
//! `ZERO_KV_FAULTS_SECONDS` of at least 100 also waits until the kernel takes a lease away.

#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;
#[path = "../faults/gets.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod gets;
#[path = "../faults/mixed.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod mixed;
#[path = "../redis/reply.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod reply;
#[path = "../baker/runs.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod runs;
#[path = "../baker/faults/scene.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod scene;
#[path = "../faults/served.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod served;
#[path = "../support/mod.rs"]
mod support;
#[path = "../faults/values.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod values;

mod baker_disks;
mod leases;
mod outputs;
mod overlay;
mod paused;
mod promtool;
mod requirements;
mod served_disks;
mod server_user;
mod tmpfs;
mod users;
mod writers;

use std::process::ExitCode;

use clients::trials;
use libtest_mimic::{Arguments, run};

fn main() -> ExitCode {
    let trials = trials![
        baker_disks::a_disk_that_may_not_be_written_to_is_named,
        baker_disks::a_full_disk_of_the_output_is_named_at_whatever_byte_it_is_full,
        baker_disks::a_full_disk_of_the_temporary_files_is_named_with_its_remedy,
        baker_disks::input_output_and_temporary_files_may_be_on_different_disks,
        baker_disks::where_files_cannot_be_unnamed_a_bake_leaves_no_other_name,
        baker_disks::without_unnamed_files_a_bake_has_a_hidden_name_that_is_not_left,
        leases::a_file_that_is_no_longer_served_is_no_longer_leased,
        outputs::links_at_the_places_of_outputs_are_replaced_and_their_targets_kept,
        outputs::links_of_other_users_are_not_followed_to_devices_either,
        overlay::a_process_that_mapped_a_file_on_an_overlay_before_the_server_changes_no_value,
        paused::a_file_that_is_written_to_while_the_server_is_stopped_gives_errors,
        paused::a_server_that_was_stopped_sends_no_value_that_was_written_meanwhile,
        promtool::promtool_accepts_the_metrics,
        served_disks::a_disk_that_returns_errors_ends_nothing_and_a_good_file_mends_it,
        server_user::a_direct_client_checks_the_user_of_its_own_connection,
        server_user::a_link_from_a_directory_where_others_can_write_is_not_trusted,
        server_user::a_server_of_another_user_is_accepted_where_only_that_user_and_root_can_write,
        server_user::every_client_rejects_a_server_of_another_user_where_others_can_write,
        server_user::the_server_of_another_user_under_an_abstract_name_must_be_named,
        tmpfs::a_file_put_in_place_is_served_while_a_process_still_has_the_old_one_mapped,
        tmpfs::a_lease_that_the_system_takes_from_a_stopped_server_ends_the_trust_in_the_file,
        tmpfs::a_table_that_a_process_wrote_through_a_mapping_is_served_as_a_new_generation,
        tmpfs::a_writer_that_changes_nothing_costs_errors_only_while_it_has_the_file_open,
        tmpfs::values_that_a_process_overwrites_through_a_mapping_are_errors_until_it_has_restored_them,
        users::a_lock_file_of_another_user_is_named_with_its_owner_at_once,
        users::a_number_that_different_users_share_makes_nobody_an_administrator,
        users::a_server_whose_user_has_no_number_here_is_rejected_unless_all_such_users_are_accepted,
        users::another_user_may_look_up_and_not_reload,
        users::owner_and_group_are_set_by_number_or_by_name,
        users::programs_use_the_server_of_another_user_in_a_shared_folder_only_if_it_is_named,
        writers::a_file_that_a_process_can_write_to_is_served_once_that_has_closed_it,
        writers::a_server_does_not_start_with_a_file_that_a_process_can_write_to,
        writers::a_server_that_cannot_detect_writers_says_so,
        writers::a_server_that_starts_waits_for_a_writer_that_closes_the_file,
    ];
    run(&Arguments::from_args(), trials).exit_code()
}
