//! The commands that run the other programs. Only the help reads these definitions: see `programs`.

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum ProgramCommand {
    /// Compile rows into a file to serve: runs `baker`
    ///
    /// All arguments are passed to `baker`; `zkv bake --help` lists them.
    Bake,
    /// Serve a baked file to all processes of this machine: runs `kv_store`
    ///
    /// All arguments are passed to `kv_store`; `zkv serve --help` lists them.
    Serve,
    /// Saturate a server with requests of many clients, and measure it: runs `benchmarker`
    ///
    /// All arguments are passed to `benchmarker`; `zkv saturate --help` lists them. To measure the client library
    /// instead of a server, use `zkv bench`.
    Saturate,
}

impl ProgramCommand {
    /// Returns the program that a command runs, or `None` if no such command exists.
    pub(crate) fn program(command: &str) -> Option<&'static str> {
        match command {
            "bake" => Some("baker"),
            "serve" => Some("kv_store"),
            "saturate" => Some("benchmarker"),
            _ => None,
        }
    }
}
