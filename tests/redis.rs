//! `kv_store` as Redis clients see it: compared with a real Redis, and driven by third-party clients.

mod helpers;

mod redis {
    pub(crate) mod benchmark;
    pub(crate) mod benchmarker;
    pub(crate) mod cli;
    pub(crate) mod differential;
    pub(crate) mod document;
    pub(crate) mod errors;
    pub(crate) mod protocols;
    pub(crate) mod python;
    pub(crate) mod served;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

use helpers::trials::trials;
use redis::{benchmark, benchmarker, cli, differential, document, errors, protocols, python};

fn main() -> ExitCode {
    let trials = trials![
        benchmark::it_runs_with_and_without_pipelines,
        benchmarker::a_real_redis_answers_for_byte_keys_of_all_bytes_and_lengths,
        benchmarker::a_real_redis_with_the_same_rows_passes_verification,
        cli::info_tells_what_tools_look_for,
        cli::it_asks_and_prints_what_there_is,
        cli::it_reads_commands_from_its_input,
        cli::it_scans_all_keys,
        differential::commands_are_described_alike,
        differential::hello_says_the_same_of_the_connection,
        differential::keys_finds_the_same,
        differential::long_pipelines_are_the_same,
        differential::ranges_are_the_same_for_indexes_of_every_sign,
        differential::scan_goes_through_all_keys_once,
        differential::scan_options_are_refused_in_the_same_words,
        differential::values_are_the_same,
        differential::version_3_is_the_same,
        differential::what_is_said_about_the_connection_is_the_same,
        differential::what_is_unknown_is_told_in_the_same_words,
        differential::wrong_numbers_of_arguments_are_told_in_the_same_words,
        document::the_document_lists_the_commands_that_there_are,
        document::the_document_names_the_limits_that_the_library_has,
        document::the_document_names_the_limits_that_the_server_has,
        document::the_documents_examples_are_answered_as_they_say,
        errors::a_key_that_is_no_number_is_an_error_on_a_table_of_numbers,
        errors::an_announced_length_allocates_nothing,
        errors::malformed_bytes_are_answered_as_by_redis,
        errors::writes_are_refused_as_by_a_replica,
        errors::zeros_before_a_key_change_nothing,
        protocols::a_client_that_reads_nothing_stops_nobody_else,
        protocols::a_connection_speaks_the_protocol_of_its_first_byte,
        protocols::requests_may_be_split_at_any_byte,
        protocols::tcp_answers_the_same,
        python::the_newest_redis_py_expects_what_redis_replies,
        python::the_newest_redis_py_gets_what_it_expects,
        python::the_pinned_redis_py_expects_what_redis_replies,
        python::the_pinned_redis_py_gets_what_it_expects,
    ];
    run(&Arguments::from_args(), trials).exit_code()
}
