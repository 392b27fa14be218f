//! `kv_store` as Redis clients see it: compared with a real Redis, and driven by third-party clients.

use testkit as helpers;

mod redis {
    pub(crate) mod administration;
    pub(crate) mod benchmark;
    pub(crate) mod benchmarker;
    pub(crate) mod cli;
    pub(crate) mod clients;
    pub(crate) mod descriptions;
    pub(crate) mod differential;
    pub(crate) mod document;
    pub(crate) mod errors;
    pub(crate) mod hashes;
    pub(crate) mod key_types;
    pub(crate) mod more_reads;
    pub(crate) mod protocols;
    pub(crate) mod python;
    pub(crate) mod served;
    pub(crate) mod tls;
    pub(crate) mod tools;
    pub(crate) mod tracking;
    pub(crate) mod users;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

use helpers::trials::trials;
use redis::{
    administration, benchmark, benchmarker, cli, clients, descriptions, differential, document, errors, hashes,
    key_types, more_reads, protocols, python, tls, tools, tracking, users,
};

fn main() -> ExitCode {
    let trials = trials![
        administration::a_client_leaves_monitor_mode_as_in_redis,
        administration::a_monitor_that_reads_too_slowly_is_disconnected,
        administration::client_kill_ends_the_same_connections_as_in_redis,
        administration::errors_of_client_kill_are_equal,
        administration::monitors_see_the_same_commands_as_in_redis,
        administration::only_administrators_can_kill_and_monitor,
        administration::redis_cli_monitors,
        benchmark::redis_benchmark_runs_with_and_without_pipelines,
        benchmarker::a_real_redis_answers_for_byte_keys_of_all_bytes_and_lengths,
        benchmarker::a_real_redis_with_the_same_rows_passes_verification,
        cli::info_has_the_fields_that_tools_read,
        cli::redis_cli_prints_replies,
        cli::redis_cli_reads_commands_from_standard_input,
        cli::redis_cli_scans_all_keys,
        clients::go_redis,
        clients::go_redis_over_tls,
        clients::hiredis,
        clients::ioredis,
        clients::ioredis_over_tls,
        clients::jedis,
        clients::jedis_over_tls,
        clients::lettuce,
        clients::lettuce_over_tls,
        clients::memtier_benchmark,
        clients::node_redis,
        clients::node_redis_over_tls,
        clients::pinned_redis_py_with_asyncio,
        clients::redis_benchmark,
        clients::redis_cli,
        clients::redis_py,
        clients::redis_py_with_asyncio,
        clients::redis_rs,
        descriptions::command_docs_have_the_summaries_of_redis,
        descriptions::command_info_is_equal,
        descriptions::redis_cli_prints_the_syntax_of_every_command,
        differential::replies_to_command_are_equal,
        differential::replies_to_hello_describe_the_connection_equally,
        differential::replies_to_keys_are_equal,
        differential::replies_to_long_pipelines_are_equal,
        differential::replies_with_ranges_are_equal_for_indexes_of_every_sign,
        differential::scan_returns_all_keys_once,
        differential::errors_for_scan_options_have_equal_text,
        differential::replies_with_values_are_equal,
        differential::replies_in_version_3_are_equal,
        differential::replies_in_transactions_are_equal,
        differential::replies_about_the_connection_are_equal,
        differential::errors_for_unknown_commands_have_equal_text,
        differential::errors_for_wrong_numbers_of_arguments_have_equal_text,
        document::the_document_lists_exactly_the_supported_commands,
        document::the_documented_limits_match_the_library,
        document::the_documented_limits_match_the_server,
        document::the_documents_examples_match_the_server,
        errors::a_key_that_is_not_a_number_can_count_as_missing,
        errors::a_key_that_is_not_a_number_is_an_error_on_a_table_of_numbers,
        errors::an_announced_length_allocates_nothing,
        errors::malformed_bytes_are_answered_as_by_redis,
        errors::leading_zeros_of_a_key_are_ignored,
        hashes::replies_about_hashes_are_equal,
        hashes::hashes_with_long_values_have_the_same_fields,
        hashes::scans_of_wide_hashes_return_all_fields_once,
        hashes::replies_to_long_pipelines_of_hash_commands_are_equal,
        hashes::inline_hash_commands_get_the_replies_of_pipelined_ones,
        hashes::random_fields_are_fields_of_the_row,
        hashes::scan_finds_rows_by_the_type_hash,
        hashes::a_row_of_nulls_is_a_hash_without_fields,
        hashes::a_malformed_row_gets_an_error,
        hashes::hashes_with_byte_keys_have_equal_replies,
        hashes::users_need_the_permission_for_the_command_and_the_key,
        hashes::monitors_and_counters_of_hash_commands_are_equal,
        hashes::redis_py_reads_hashes,
        key_types::go_redis_reads_addresses,
        key_types::hashes_are_read_by_keys_of_every_type,
        key_types::lookups_take_every_spelling_of_a_key,
        key_types::ordered_lookups_have_the_order_of_the_values,
        key_types::patterns_match_the_written_form,
        key_types::prefixes_are_leading_parts,
        key_types::redis_py_reads_addresses,
        key_types::text_of_another_type_is_an_error_or_missing,
        key_types::users_reach_no_key_by_another_spelling,
        more_reads::replies_about_roles_and_clusters_are_equal,
        more_reads::info_reports_true_fields_with_the_values_of_redis,
        more_reads::a_client_that_looks_for_a_master_finds_one,
        more_reads::replies_with_bits_are_equal,
        more_reads::replies_with_other_properties_of_strings_are_equal,
        protocols::a_client_that_reads_nothing_blocks_no_other_client,
        protocols::a_connection_speaks_the_protocol_of_its_first_byte,
        protocols::requests_may_be_split_at_any_byte,
        protocols::tcp_has_equal_replies,
        python::the_newest_redis_py_script_passes_on_redis,
        python::the_newest_redis_py_script_passes_on_kv_store,
        python::the_pinned_redis_py_script_passes_on_redis,
        python::the_pinned_redis_py_script_passes_on_kv_store,
        python::the_newest_redis_py_script_passes_over_tls,
        python::the_pinned_redis_py_script_passes_over_tls,
        tls::redis_benchmark_runs_over_tls,
        tls::redis_cli_needs_a_certificate_if_the_server_requires_one,
        tls::redis_cli_prints_replies_over_tls,
        tools::every_section_of_info_is_one_word_and_every_field_a_name_and_a_value,
        tools::every_write_of_redis_is_rejected_as_by_a_replica,
        tools::info_counts_commands_errors_and_percentiles,
        tools::replies_about_memory_and_the_served_file_are_true,
        tools::replies_without_events_modules_and_channels_are_equal,
        tools::replies_without_scripts_and_functions_are_equal,
        tools::unsupported_commands_are_rejected_with_the_reason,
        tracking::a_caching_client_keeps_no_row_of_a_replaced_generation,
        tracking::a_swap_reaches_a_thousand_caching_clients,
        tracking::messages_are_redirected_to_another_connection,
        tracking::replies_about_subscriptions_are_equal,
        tracking::replies_about_tracking_are_equal,
        users::replies_with_users_are_equal,
        users::replies_to_commands_with_many_keys_are_equal,
        users::redis_py_logs_in,
    ];
    run(&Arguments::from_args(), trials).exit_code()
}
