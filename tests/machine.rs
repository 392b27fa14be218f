//! Tests that need root, leases, control groups, mounts, user namespaces, a second disk, a table of IP ranges, systemd,
//! or promtool.
//!
//! With `ZERO_KV_FAULTS_SECONDS` of at least 100, a test also waits until the kernel breaks a lease.

use testkit as helpers;

mod machine {
    pub(crate) mod baker_disks;
    pub(crate) mod coarse_times;
    pub(crate) mod inherited_sockets;
    pub(crate) mod ip_ranges;
    pub(crate) mod leases;
    pub(crate) mod memory_groups;
    pub(crate) mod mounted;
    pub(crate) mod outputs;
    pub(crate) mod overlay;
    pub(crate) mod paused;
    pub(crate) mod planted;
    pub(crate) mod processes;
    pub(crate) mod promtool;
    pub(crate) mod published_disks;
    pub(crate) mod remote;
    pub(crate) mod requirements;
    pub(crate) mod restored_times;
    pub(crate) mod served_disks;
    pub(crate) mod server_user;
    pub(crate) mod service_manager;
    pub(crate) mod stale_mounts;
    pub(crate) mod stopping;
    pub(crate) mod tmpfs;
    pub(crate) mod unit_files;
    pub(crate) mod users;
    pub(crate) mod writers;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

use helpers::trials::trials;
use machine::{
    baker_disks, coarse_times, inherited_sockets, ip_ranges, leases, memory_groups, outputs, overlay, paused, planted,
    processes, promtool, published_disks, remote, restored_times, served_disks, server_user, service_manager,
    stale_mounts, stopping, tmpfs, unit_files, users, writers,
};

fn main() -> ExitCode {
    let trials = trials![
        baker_disks::a_read_only_disk_is_named,
        baker_disks::a_full_output_disk_is_named_wherever_the_output_is_truncated,
        baker_disks::a_full_disk_of_the_temporary_files_is_named_with_its_remedy,
        baker_disks::input_output_and_temporary_files_may_be_on_different_disks,
        baker_disks::a_bake_without_unnamed_files_leaves_no_other_file,
        baker_disks::without_unnamed_files_a_bake_uses_a_hidden_name_and_removes_it,
        coarse_times::two_writes_within_one_second_are_distinguished_where_times_are_whole_seconds,
        inherited_sockets::a_restart_with_an_inherited_socket_fails_no_connection,
        inherited_sockets::sockets_passed_to_another_process_are_ignored,
        inherited_sockets::systemd_socket_activate_starts_a_server,
        inherited_sockets::inherited_unix_and_tcp_sockets_are_served_and_not_removed,
        inherited_sockets::an_inherited_descriptor_that_cannot_be_served_is_named,
        inherited_sockets::wrong_variables_about_inherited_sockets_are_named,
        inherited_sockets::announced_descriptors_that_are_closed_are_named,
        inherited_sockets::an_inherited_tcp_socket_beyond_loopback_requires_an_option,
        ip_ranges::every_address_of_the_excerpt_has_its_country_or_none,
        ip_ranges::every_address_of_the_whole_table_has_its_country_or_none,
        ip_ranges::every_ipv6_address_of_the_whole_table_has_its_country_or_none,
        leases::a_file_that_is_no_longer_served_is_no_longer_leased,
        memory_groups::unread_responses_of_unix_sockets_do_not_fill_a_memory_group,
        outputs::a_replaced_file_keeps_its_owner_unless_another_user_may_have_planted_it,
        outputs::links_at_output_paths_are_replaced_and_their_targets_kept,
        outputs::links_of_other_users_are_not_followed_to_devices_either,
        overlay::a_mapping_on_an_overlay_that_is_older_than_the_server_changes_no_value,
        paused::a_file_written_to_while_the_server_is_stopped_gives_errors,
        paused::a_server_sends_no_value_that_was_written_while_it_was_stopped,
        planted::nothing_that_another_user_plants_makes_a_program_change_files_elsewhere_or_hang,
        processes::a_bake_without_enough_threads_is_an_error,
        processes::signals_that_the_parent_has_blocked_stop_a_server,
        promtool::promtool_accepts_the_alerts,
        promtool::promtool_accepts_the_metrics,
        promtool::the_alerts_pass_their_tests,
        published_disks::a_disk_that_fills_during_a_fetch_keeps_the_served_generation,
        published_disks::a_fetch_does_not_start_on_a_full_disk,
        published_disks::a_disk_without_room_for_merged_rows_keeps_the_served_generation,
        published_disks::a_full_or_read_only_folder_of_a_store_is_named_with_its_remedy,
        remote::a_file_that_another_machine_changes_gives_errors_although_its_attributes_are_cached,
        restored_times::a_new_file_can_be_read_where_no_page_can_be_copied,
        restored_times::a_value_that_is_overwritten_before_the_time_is_restored_is_an_error,
        restored_times::a_value_that_is_overwritten_and_restored_while_names_change_is_right_or_an_error,
        restored_times::changes_of_names_and_permissions_fail_no_lookup,
        restored_times::changes_of_names_and_permissions_without_pause_fail_no_lookup,
        restored_times::direct_clients_of_a_stopped_server_return_no_byte_that_was_written_before_the_time_was_restored,
        served_disks::a_server_survives_a_failing_disk_and_recovers_with_a_good_file,
        server_user::a_direct_client_checks_the_user_of_its_own_connection,
        server_user::a_link_from_a_directory_where_others_can_write_is_not_trusted,
        server_user::a_server_of_another_user_is_accepted_where_only_that_user_and_root_can_write,
        server_user::every_client_rejects_a_server_of_another_user_where_others_can_write,
        server_user::another_users_server_with_an_abstract_name_must_be_named,
        service_manager::the_service_manager_is_notified_of_each_reload_whether_or_not_it_succeeds,
        service_manager::a_hung_thread_suspends_the_watchdog_notifications,
        service_manager::the_service_manager_is_notified_when_the_server_is_ready_and_when_it_stops,
        service_manager::the_watchdog_is_notified_while_the_server_is_idle_or_busy,
        stale_mounts::a_file_that_was_replaced_in_its_mounted_folder_is_served,
        stale_mounts::a_file_that_was_replaced_outside_of_its_mount_is_reported,
        stopping::a_server_is_ready_and_stops_while_the_resident_pages_are_counted,
        stopping::workers_stop_at_the_same_time,
        tmpfs::a_file_put_in_place_is_served_while_a_process_still_has_the_old_one_mapped,
        tmpfs::a_lease_that_the_system_takes_from_a_stopped_server_ends_the_trust_in_the_file,
        tmpfs::a_table_that_a_process_wrote_through_a_mapping_is_served_as_a_new_generation,
        tmpfs::a_writer_that_changes_nothing_causes_errors_only_while_it_has_the_file_open,
        tmpfs::values_that_a_process_overwrites_through_a_mapping_are_errors_until_it_has_restored_them,
        unit_files::systemd_finds_nothing_wrong_with_the_units,
        unit_files::systemd_finds_nothing_wrong_with_the_template_and_its_drop_ins,
        unit_files::nightly_bakes_are_valid_units_in_a_sandbox,
        unit_files::the_drop_ins_keep_the_rest_of_the_sandbox,
        unit_files::the_service_is_sandboxed,
        unit_files::the_template_is_sandboxed,
        users::a_lock_file_of_another_user_is_named_with_its_owner_at_once,
        users::a_status_or_folder_of_another_user_hides_no_other,
        users::a_node_starts_from_a_cache_that_it_cannot_write_to,
        users::a_uid_that_several_users_share_makes_nobody_an_administrator,
        users::a_server_whose_user_is_unmapped_is_rejected_unless_all_unmapped_users_are_accepted,
        users::another_user_may_look_up_but_not_reload,
        users::clients_that_receive_no_tables_do_not_keep_others_from_receiving_them,
        users::owner_and_group_are_set_by_number_or_by_name,
        users::programs_use_the_server_of_another_user_in_a_shared_folder_only_if_it_is_named,
        writers::a_file_is_served_once_its_writer_has_closed_it,
        writers::a_server_does_not_start_with_a_file_that_a_process_can_write_to,
        writers::a_server_that_cannot_detect_writers_reports_it,
        writers::a_starting_server_waits_for_a_writer_to_close_the_file,
    ];
    run(&Arguments::from_args(), trials).exit_code()
}
