//! Code that several binaries share. It is not part of the library's public interface.

pub mod args;
pub mod examples;
pub mod generate;
#[cfg(feature = "object-store")]
pub mod publishing;
pub mod stderr;
pub mod stop_signals;
pub mod values;
pub mod whole_file;
