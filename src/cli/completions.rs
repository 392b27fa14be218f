//! Shell code that completes what clap does not know.

/// Code of shells that completes what the definition of a command line does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct MoreCompletions {
    /// Follows the generated code for bash.
    pub bash: &'static str,
    /// Follows the generated functions for zsh, and precedes the call of the function for the program.
    pub zsh: &'static str,
    /// Follows the generated code for fish.
    pub fish: &'static str,
}
