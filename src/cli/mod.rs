//! Parts that several binaries share. Not part of the library's interface.

pub mod generate;
pub mod replace_args;
pub mod settings;
pub mod size;
pub mod whole_file;
