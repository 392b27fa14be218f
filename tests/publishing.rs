//! Published tables: publishers and operators use the real programs on folders, on S3, and on plain HTTP servers.

use testkit as helpers;

mod publishing {
    pub(crate) mod baking;
    pub(crate) mod busy_stores;
    pub(crate) mod changes;
    pub(crate) mod collection;
    pub(crate) mod copies;
    pub(crate) mod damage;
    pub(crate) mod engine;
    pub(crate) mod gaps;
    pub(crate) mod hostile;
    pub(crate) mod interrupts;
    pub(crate) mod life_cycle;
    pub(crate) mod local_folder;
    pub(crate) mod lost_responses;
    pub(crate) mod nodes;
    pub(crate) mod plain_http;
    pub(crate) mod proxy;
    pub(crate) mod quotas;
    pub(crate) mod rejected;
    pub(crate) mod rollouts;
    pub(crate) mod shards;
    pub(crate) mod stores;
    pub(crate) mod watch;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial, run};

use helpers::store_servers::{StoreKind, stop_servers};
use helpers::trials::{trial, trials};
use publishing::stores::Store;
use publishing::{
    baking, busy_stores, changes, collection, copies, damage, engine, gaps, hostile, interrupts, life_cycle,
    local_folder, lost_responses, plain_http, quotas, rejected, rollouts, shards, watch,
};

/// Lists test functions of a store, each as one test with a folder, one test with S3, and one test with each other
/// store that is installed.
macro_rules! on_every_store {
    ($($module:ident::$test:ident),* $(,)?) => {
        [$(on_stores(concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*].concat_trials()
    };
}

/// Joins lists of tests.
trait ConcatTrials {
    fn concat_trials(self) -> Vec<Trial>;
}

impl<const N: usize> ConcatTrials for [Vec<Trial>; N] {
    fn concat_trials(self) -> Vec<Trial> {
        self.into_iter().flatten().collect()
    }
}

fn on_stores(name: &str, test: fn(&Store)) -> Vec<Trial> {
    let mut trials = vec![
        trial(format!("{name}::folder"), move || test(&Store::folder())),
        trial(format!("{name}::s3"), move || Store::s3().map(|store| test(&store))),
    ];
    let is_usable = |kind: &StoreKind| *kind != StoreKind::S3s || !NEED_ATOMIC_CREATION.contains(&name);
    for kind in OTHER_STORES.into_iter().filter(|kind| kind.installed().is_ok()).filter(is_usable) {
        let name = format!("{name}::{kind:?}").to_lowercase();
        trials.push(trial(name, move || Store::on(kind).map(|store| test(&store))));
    }
    trials
}

/// The servers on which the tests also run if they are installed: `.ci/install-stores`.
const OTHER_STORES: [StoreKind; 2] = [StoreKind::S3s, StoreKind::Azurite];

/// The tests that fail on s3s-fs, which honors `If-None-Match`, but not if two requests create an object at the same
/// time.
const NEED_ATOMIC_CREATION: [&str; 2] =
    ["life_cycle::racing_publishers_lose_no_generation", "life_cycle::the_store_is_checked"];

/// Lists the other stores, each as one test, which is ignored if the store is not installed.
fn other_stores() -> Vec<Trial> {
    let of_kind =
        |kind: StoreKind| trial(format!("stores::{kind:?}").to_lowercase(), move || kind.installed().map(drop));
    OTHER_STORES.map(of_kind).into()
}

fn main() -> ExitCode {
    let mut trials = on_every_store![
        baking::a_bake_is_published_by_the_same_command,
        baking::a_merge_is_published_by_the_same_command,
        baking::shards_are_published_by_the_same_command,
        baking::the_rules_of_a_bake_compare_it_with_the_newest_generation,
        changes::a_bake_that_publishes_is_compared,
        changes::a_generation_is_compared_with_the_newest_one_that_can_be_read,
        changes::a_renamed_removed_or_retyped_column_is_rejected_unless_it_is_allowed,
        changes::suspicious_changes_are_rejected_unless_they_are_allowed,
        collection::files_are_deleted_only_if_nothing_needs_them_and_they_are_old,
        collection::files_of_a_publication_that_never_ended_are_retained_without_a_manifest,
        collection::nothing_is_deleted_if_a_manifest_is_damaged,
        collection::nothing_is_deleted_if_the_newest_manifests_were_deleted,
        copies::a_copy_has_the_bytes_and_the_facts_of_the_original,
        damage::a_changed_object_is_rejected,
        damage::a_damaged_manifest_is_rejected,
        damage::a_manifest_of_a_newer_format_is_rejected,
        damage::a_missing_object_is_rejected,
        damage::a_truncated_object_is_rejected,
        gaps::a_damaged_manifest_hides_no_other_generation,
        gaps::documents_with_another_number_are_rejected,
        gaps::numbers_of_deleted_documents_are_not_used_again,
        gaps::numbers_that_nodes_or_pins_name_are_not_used_again,
        hostile::a_status_that_cannot_be_read_is_skipped_and_reported,
        interrupts::an_interrupted_download_leaves_the_old_file_and_continues,
        interrupts::an_interrupted_publication_is_complete_or_invisible,
        life_cycle::a_published_file_is_pulled_byte_by_byte,
        life_cycle::a_table_without_generations_is_reported,
        life_cycle::generations_and_pins_name_who_created_them,
        life_cycle::json_has_the_facts_of_the_text,
        life_cycle::hostile_notes_are_listed_on_one_line,
        life_cycle::pins_select_what_is_pulled,
        life_cycle::racing_publishers_lose_no_generation,
        life_cycle::the_store_is_checked,
        quotas::a_generation_beyond_a_quota_is_rejected,
        rejected::a_canary_that_the_file_fails_is_rejected,
        rejected::a_damaged_file_is_not_published,
        rejected::a_pin_to_a_missing_generation_is_rejected,
        rejected::another_parent_is_rejected,
        shards::a_generation_of_several_files_is_pulled_as_one,
        shards::keys_outside_their_slots_are_rejected,
        shards::slots_that_do_not_cover_everything_are_rejected,
    ];
    trials.extend(trials![
        busy_stores::a_node_sends_two_requests_for_each_poll_and_no_status_without_a_change,
        busy_stores::a_command_waits_for_a_busy_store_until_its_deadline,
        busy_stores::requests_wait_as_long_as_a_busy_store_asks,
        busy_stores::a_part_that_takes_longer_than_a_response_is_sent_once,
        busy_stores::statuses_of_many_nodes_are_read_at_the_same_time,
        copies::an_interrupted_copy_continues,
        copies::two_stores_have_their_own_variables,
        copies::what_cannot_be_copied_is_rejected,
        engine::an_empty_shard_has_the_columns_of_the_others,
        engine::each_attempt_of_a_task_has_its_own_file,
        engine::entries_of_tasks_are_one_generation,
        engine::incomplete_entries_are_rejected,
        engine::rows_of_other_slots_are_rejected,
        hostile::a_store_that_has_every_document_is_rejected,
        hostile::a_listing_that_continues_with_an_impossible_token_is_rejected,
        hostile::a_listing_of_impossible_lengths_is_added_up,
        hostile::a_long_name_of_an_upload_is_rejected,
        hostile::texts_beyond_the_limits_are_not_published,
        interrupts::a_second_signal_ends_a_publication_at_once,
        interrupts::a_forged_state_of_an_upload_does_not_change_what_is_published,
        interrupts::an_interrupted_upload_continues,
        interrupts::the_first_signal_ends_a_publication_whose_errors_nobody_reads,
        local_folder::a_node_with_a_complete_cache_serves_while_the_folder_hangs,
        local_folder::a_signal_ends_a_download_while_the_folder_hangs,
        local_folder::a_status_that_is_no_readable_file_hides_no_other,
        local_folder::links_in_a_store_lead_nobody_out_of_it,
        local_folder::only_files_of_uploads_are_garbage,
        local_folder::special_files_in_a_store_block_no_program,
        local_folder::statuses_that_cannot_be_listed_do_not_stop_publishers,
        lost_responses::a_commit_that_another_publisher_overwrote_gets_the_next_number,
        lost_responses::a_creation_whose_response_is_lost_succeeds,
        lost_responses::a_creation_without_permission_is_tried_once,
        lost_responses::a_store_that_hides_new_objects_is_found,
        lost_responses::a_store_that_loses_some_races_is_found,
        lost_responses::an_upload_whose_last_response_is_lost_succeeds,
        lost_responses::reads_of_an_older_state_end_with_a_message,
        plain_http::a_changed_byte_costs_its_block_and_not_the_file,
        plain_http::a_server_that_ignores_ranges_is_asked_once,
        plain_http::a_download_over_http_continues,
        plain_http::a_folder_in_the_place_of_a_partial_download_is_named_with_the_remedy,
        plain_http::redirects_lead_to_another_host_only_without_credentials,
        plain_http::a_published_folder_is_read_over_http,
        rejected::malformed_command_lines_are_rejected,
        rejected::wrong_credentials_are_reported,
        rollouts::a_barrier_makes_all_nodes_serve_after_the_decision,
        rollouts::a_failed_canary_node_stops_the_rollout,
        rollouts::a_terminal_shows_a_live_table_of_nodes,
        rollouts::a_terminal_that_cannot_redraw_shows_lines,
        rollouts::a_rollout_that_no_node_confirms_is_not_done,
        rollouts::a_rollout_without_nodes_is_rejected,
        rollouts::an_abort_restores_what_nodes_served,
        rollouts::an_aborted_rollout_goes_back_to_the_generation_before,
        rollouts::a_failed_zone_keeps_the_next_one_from_beginning,
        rollouts::a_rollout_continues_after_reports_could_not_be_read,
        rollouts::reports_from_before_a_rollout_confirm_nothing,
        rollouts::another_pin_ends_a_rollout,
        rollouts::a_pin_of_one_node_does_not_activate_what_the_others_hold,
        rollouts::canary_nodes_serve_first,
        rollouts::only_a_generation_that_is_rolled_out_can_be_aborted,
        rollouts::nodes_that_were_silent_before_the_rollout_count_as_tolerated,
        rollouts::tolerated_nodes_are_named,
        rollouts::too_few_ready_nodes_are_reported_after_the_time,
        watch::a_failing_store_is_read_again,
        watch::a_store_without_readable_statuses_has_no_nameless_node,
        watch::a_terminal_shows_printable_text,
        watch::changes_of_nodes_are_lines,
        watch::nodes_are_printed_once,
        rollouts::zones_serve_one_after_the_other,
        rollouts::zones_that_are_not_those_of_the_nodes_are_rejected,
        rollouts::zones_with_a_barrier_prepare_first_and_can_be_aborted,
    ]);
    trials.extend(other_stores());
    let conclusion = run(&Arguments::from_args(), trials);
    stop_servers();
    conclusion.exit_code()
}
