//! Command-line options of a new generation of a published table, which `baker` and `zkv publish` share.

use std::path::PathBuf;

/// The error of programs without the feature `object-store`.
#[cfg(not(feature = "object-store"))]
const MISSING_FEATURE: &str =
    "this program was built without the feature object-store: build it with the feature object-store or full";

#[derive(clap::Args, Clone, Debug, Default)]
pub struct GenerationArgs {
    /// Add the canaries in this file, lines `key,digest` as `zkv canary` writes them; servers look them up before they
    /// serve the generation
    #[arg(long, value_name = "FILE", requires = "to")]
    pub canary: Option<PathBuf>,
    /// Add this text for people
    #[arg(long, value_name = "TEXT", requires = "to")]
    pub note: Option<String>,
    /// Publish only if generation N is the newest one; 0 means that the table must have none
    #[arg(long, value_name = "N", requires = "to")]
    pub parent: Option<u64>,
}

/// Returns the URL of a published table. Programs without the feature `object-store` reject every URL.
pub fn parse_url(text: &str) -> Result<String, &'static str> {
    #[cfg(feature = "object-store")]
    return Ok(text.to_owned());
    #[cfg(not(feature = "object-store"))]
    {
        let _ = text;
        Err(MISSING_FEATURE)
    }
}
