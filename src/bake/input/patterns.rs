//! Finds the files that match patterns.

use std::io;
use std::path::{Path, PathBuf};

use glob::MatchOptions;

use super::Input;
use crate::bake::error::BakeError;

/// Options that make patterns match as in a shell.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

pub(super) fn expand<'a>(patterns: &[PathBuf]) -> Result<Vec<Input<'a>>, BakeError> {
    let mut inputs = Vec::new();
    for pattern in patterns {
        match pattern.to_str() {
            Some("-") if patterns.iter().filter(|other| *other == pattern).count() > 1 => {
                let message = "is named twice, but can be read only once: name it once";
                let error = io::Error::new(io::ErrorKind::InvalidInput, message);
                return Err(BakeError::Input { input: "standard input".to_owned(), error });
            }
            Some("-") => inputs.push(Input::stdin()),
            _ => {
                let fault = |error| BakeError::Input { input: pattern.display().to_string(), error };
                inputs.extend(files(pattern).map_err(fault)?.into_iter().map(Input::file));
            }
        }
    }
    Ok(inputs)
}

fn files(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let no_such_file = match pattern.symlink_metadata() {
        Ok(_) => return Ok(vec![pattern.to_path_buf()]),
        Err(error) => error,
    };
    let Some(text) = pattern.to_str().filter(|text| text.contains(['*', '?', '['])) else {
        return Err(no_such_file);
    };
    let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
    let paths = glob::glob_with(text, OPTIONS).map_err(|error| invalid(error.to_string()))?;
    let mut paths = paths.map(|path| path.map_err(io::Error::from)).collect::<io::Result<Vec<_>>>()?;
    if paths.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "is not a file, and matches no file as a pattern: check the path",
        ));
    }
    paths.sort();
    Ok(paths)
}
