//! `kv_store` as a node of a cluster: compared with a real Redis cluster, driven by third-party clients, and while nodes
//! and topologies change.

use testkit as helpers;

mod cluster {
    pub(crate) mod changed_tables;
    pub(crate) mod chaos;
    pub(crate) mod clients;
    pub(crate) mod commands;
    pub(crate) mod differential;
    pub(crate) mod fleet;
    pub(crate) mod generations;
    pub(crate) mod hostile;
    pub(crate) mod limits;
    pub(crate) mod load;
    pub(crate) mod long_replies;
    pub(crate) mod moves;
    pub(crate) mod native_clients;
    pub(crate) mod nodes;
    pub(crate) mod redis_cluster;
    pub(crate) mod stores;
    pub(crate) mod surfaces;
    pub(crate) mod topologies;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

use cluster::{
    changed_tables, chaos, clients, commands, differential, generations, hostile, limits, long_replies, moves,
    native_clients, stores, surfaces, topologies,
};
use helpers::store_servers::stop_servers;
use helpers::trials::trials;

fn main() -> ExitCode {
    let trials = trials![
        chaos::clients_get_right_values_during_every_kind_of_fault,
        clients::go_redis,
        clients::ioredis,
        clients::jedis,
        clients::lettuce,
        clients::node_redis,
        clients::redis_rs,
        clients::redis_benchmark_finds_all_nodes,
        clients::redis_cli_follows_redirections,
        clients::redis_py_routes_and_reads_from_replicas,
        commands::a_planned_cluster_has_the_slots_of_the_files_of_a_sharded_bake,
        commands::topologies_are_planned_checked_applied_and_shown,
        differential::replies_about_the_cluster_are_equal,
        differential::replies_of_a_primary_are_equal,
        differential::replies_of_a_replica_are_equal,
        differential::a_node_without_a_topology_replies_as_a_new_node_of_redis,
        generations::every_value_is_of_a_published_generation_while_everything_fails,
        hostile::a_node_that_disconnects_at_any_step_causes_an_error,
        hostile::a_node_that_stalls_leaves_time_for_its_replica,
        hostile::a_topology_of_thousands_of_nodes_needs_few_threads_and_connections,
        hostile::bad_topologies_are_errors_that_state_the_value_and_the_remedy,
        hostile::malformed_slots_of_a_file_are_a_violation_of_the_protocol,
        hostile::nodes_that_never_respond_end_a_call_after_its_time,
        hostile::nodes_that_redirect_to_each_other_end_a_call_after_its_attempts,
        hostile::topologies_that_always_change_end_a_call_after_its_attempts,
        limits::a_file_with_thousands_of_ranges_answers_ordered_lookups,
        limits::a_rejected_topology_file_is_logged_once_and_reported_until_it_is_replaced,
        limits::the_largest_topologies_are_checked_applied_and_served,
        limits::topologies_beyond_the_limits_are_rejected_by_writers_and_readers,
        long_replies::long_replies_that_many_clients_do_not_read_are_held_once,
        moves::a_primary_and_a_replica_are_killed_and_restarted_under_load,
        moves::no_reply_is_wrong_while_topologies_change_under_load,
        changed_tables::cached_values_are_those_of_the_tables_that_nodes_serve,
        changed_tables::keys_of_another_type_are_errors_until_the_type_is_requested_again,
        changed_tables::ranges_are_found_through_the_client_of_a_cluster,
        native_clients::keys_of_all_types_are_routed_by_their_written_form,
        native_clients::a_call_without_a_node_ends_after_its_time_out,
        native_clients::all_nodes_of_a_slot_are_tried,
        native_clients::an_ordered_lookup_takes_one_round_trip,
        native_clients::errors_name_the_reason,
        native_clients::ordered_lookups_combine_the_rows_of_all_nodes,
        native_clients::rows_of_typed_tables_have_the_columns_of_the_schema,
        native_clients::the_client_routes_by_the_topology_and_follows_it,
        stores::a_node_with_an_empty_folder_follows_the_topology_that_others_report,
        stores::nodes_that_start_while_several_topologies_wait_follow_the_newest_when_all_have_its_rows,
        stores::older_generations_stay_in_the_folder_after_a_topology_changes,
        stores::a_failed_primary_is_replaced_by_its_replica,
        surfaces::all_tables_and_clients_have_the_same_lookups,
        stores::a_node_with_several_ranges_has_their_rows,
        stores::a_node_that_fetches_is_not_failed_over,
        stores::a_topology_takes_effect_while_nodes_fetch,
        stores::a_topology_waits_for_a_primary_that_has_stopped_reporting,
        stores::the_rows_of_moved_slots_stay_in_new_generations_while_the_node_serves_them,
        stores::nodes_fetch_the_slots_that_the_topology_assigns_to_them,
        topologies::a_topology_is_replaced_only_by_a_valid_one_with_a_higher_number,
        topologies::a_file_of_other_slots_than_its_node_is_rejected,
        topologies::a_node_whose_slots_have_no_rows_starts,
        topologies::a_new_topology_invalidates_client_side_caches,
        topologies::a_node_reports_the_slots_that_its_file_lacks,
        topologies::a_server_without_a_valid_topology_does_not_start,
        topologies::byte_keys_of_other_nodes_are_moved,
        topologies::keys_of_slots_that_the_file_lacks_are_loading,
        topologies::native_clients_are_told_which_keys_other_nodes_have,
        topologies::numbers_with_leading_zeros_are_rejected,
        topologies::pipelines_redirect_only_the_keys_of_other_nodes,
        topologies::the_slot_of_a_key_is_that_of_its_written_form,
        topologies::the_keys_of_slots_are_counted_once_for_each_generation,
        topologies::typed_tables_redirect_pipelined_hash_commands,
    ];
    let conclusion = run(&Arguments::from_args(), trials);
    stop_servers();
    conclusion.exit_code()
}
