//! Code that several binaries share. It is not part of the library's public interface.

pub mod generate;
#[cfg(feature = "full")]
mod generated_files;
pub mod replace_args;
pub mod server_args;
pub mod size;
pub mod whole_file;
