//! Code that several binaries share. It is not part of the library's public interface.

pub mod causes;
pub mod completions;
pub mod examples;
pub mod generate;
#[cfg(feature = "full")]
mod generated_files;
pub mod generation_args;
pub mod live_bar;
pub mod names;
pub mod number;
#[cfg(feature = "object-store")]
pub mod publishing;
pub mod replace_args;
pub mod server_args;
pub mod size;
pub mod stop_signals;
#[cfg(feature = "object-store")]
pub mod transfer_display;
pub mod whole_file;
