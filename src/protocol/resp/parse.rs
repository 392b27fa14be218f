//! Commands, told apart in bytes that come in pieces.
//!
//! In: the bytes that a client sent and no command has consumed. Out: the
//! first command among them, borrowed; or that it has not come whole; or what
//! is wrong with it. Nothing is kept but [`Progress`], and nothing is
//! allocated but an inline command that came whole.
//!
//! Redis takes any two bytes for a line end, and for the two behind an
//! argument. Here they must be CR and LF: after others the client and the
//! server no longer agree where a command begins.

use thiserror::Error;

use super::{ARGS_MAX, BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES, Command, LINE_LEN_MAX_BYTES, inline, integer};

/// The least bytes that an argument takes.
const ARG_LEN_MIN_BYTES: usize = b"$0\r\n\r\n".len();

/// How far a command that has not come whole was read, so that no byte of it
/// is read again but the line it stopped in. New for each connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Where the next argument begins; 0 before the count of arguments is known.
    at: u32,
    args_left: u32,
    /// Up to where no line end was found.
    searched: u32,
}

/// What stands at the head of a client's bytes.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A command.
    Command {
        /// The command.
        command: Command<'a>,
        /// The bytes it takes.
        len_bytes: usize,
    },
    /// A command that came as a line of words.
    Inline {
        /// The same command in array form, for [`Command::new`].
        command: Vec<u8>,
        /// The bytes that the line takes.
        len_bytes: usize,
    },
    /// An empty line or an empty array, to which there is no reply.
    Nothing {
        /// The bytes it takes.
        len_bytes: usize,
    },
    /// A command that has not come whole. It is shorter than
    /// [`COMMAND_LEN_MAX_BYTES`]; come again with these bytes and more.
    Incomplete,
}

/// Why bytes are no command; the reply's text, in Redis's words, without `ERR`.
///
/// After it nothing that the client sends can be told apart.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is no number, or above [`ARGS_MAX`].
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLen,
    /// An argument does not begin with its length.
    #[error("Protocol error: expected '$', got '{}'", got.escape_ascii())]
    ExpectedDollar {
        /// The byte in its place.
        got: u8,
    },
    /// An argument's length is no number, above [`BULK_LEN_MAX_BYTES`], or not that of the argument.
    #[error("Protocol error: invalid bulk length")]
    BulkLen,
    /// A line of words is longer than [`LINE_LEN_MAX_BYTES`].
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// The count of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLenTooBig,
    /// An argument's length does not end.
    #[error("Protocol error: too big bulk count string")]
    BulkLenTooBig,
    /// A quote is not closed, or closed within a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The command is longer than [`COMMAND_LEN_MAX_BYTES`].
    #[error("Protocol error: too big command, the limit is {COMMAND_LEN_MAX_BYTES} bytes")]
    CommandTooBig,
}

/// Reads the command at the head of `input`.
///
/// After [`Parsed::Incomplete`], hand in the same bytes with more behind them
/// and the same `progress`; after anything else `progress` is new again. How
/// the bytes are cut into calls changes nothing in what they are read as.
///
/// # Errors
/// [`ProtocolError`], as soon as it can be told, whatever length was announced.
pub fn parse<'a>(input: &'a [u8], progress: &mut Progress) -> Result<Parsed<'a>, ProtocolError> {
    let parsed = match input.first() {
        None => Parsed::Incomplete,
        Some(b'*') => array(input, progress)?,
        Some(_) => line_of_words(input, progress)?,
    };
    if !matches!(parsed, Parsed::Incomplete) {
        *progress = Progress::default();
    }
    Ok(parsed)
}

fn array<'a>(input: &'a [u8], progress: &mut Progress) -> Result<Parsed<'a>, ProtocolError> {
    if progress.at == 0 {
        let errors = [ProtocolError::MultibulkLen, ProtocolError::MultibulkLenTooBig];
        let Some((count, line_end)) = count_line(input, progress, errors)? else {
            return Ok(Parsed::Incomplete);
        };
        if count <= 0 {
            return Ok(Parsed::Nothing { len_bytes: line_end });
        }
        let arg_count = at_most(count, ARGS_MAX).ok_or(ProtocolError::MultibulkLen)?;
        progress.go_to(line_end, arg_count)?;
    }
    while progress.args_left > 0 {
        match input.get(progress.at as usize) {
            None => return Ok(Parsed::Incomplete),
            Some(b'$') => {}
            Some(&got) => return Err(ProtocolError::ExpectedDollar { got }),
        }
        let errors = [ProtocolError::BulkLen, ProtocolError::BulkLenTooBig];
        let Some((len, line_end)) = count_line(input, progress, errors)? else {
            return Ok(Parsed::Incomplete);
        };
        let len = at_most(len, BULK_LEN_MAX_BYTES).ok_or(ProtocolError::BulkLen)?;
        let arg_end = line_end + len;
        let mut next = *progress;
        next.go_to(arg_end + 2, progress.args_left as usize - 1)?;
        match input.get(arg_end..arg_end + 2) {
            None => return Ok(Parsed::Incomplete),
            Some(b"\r\n") => *progress = next,
            Some(_) => return Err(ProtocolError::BulkLen),
        }
    }
    let len_bytes = progress.at as usize;
    Ok(Parsed::Command { command: Command::new(&input[..len_bytes]), len_bytes })
}

impl Progress {
    /// Goes to the argument at `at`, if it and all others still fit.
    fn go_to(&mut self, at: usize, args_left: usize) -> Result<(), ProtocolError> {
        if at + args_left * ARG_LEN_MIN_BYTES > COMMAND_LEN_MAX_BYTES {
            return Err(ProtocolError::CommandTooBig);
        }
        // Both are below the limit, which 32 bits hold.
        *self = Progress { at: at as u32, args_left: args_left as u32, searched: at as u32 };
        Ok(())
    }
}

/// The number in the line at `progress.at`, behind its first byte, and where
/// the line ends; `None` if it has not come whole. The errors are for a line
/// that is no number, and for one that does not end.
fn count_line(
    input: &[u8],
    progress: &mut Progress,
    [invalid, too_big]: [ProtocolError; 2],
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let at = progress.at as usize;
    let line_max = at + LINE_LEN_MAX_BYTES + 1;
    let window_end = line_max.min(COMMAND_LEN_MAX_BYTES - 1);
    let window = &input[..input.len().min(window_end)];
    let searched = progress.searched as usize;
    let Some(found) = window[searched..].iter().position(|&byte| byte == b'\r') else {
        if input.len() >= window_end {
            return Err(if window_end == line_max { too_big } else { ProtocolError::CommandTooBig });
        }
        progress.searched = input.len() as u32;
        return Ok(None);
    };
    let cr_at = searched + found;
    match input.get(cr_at + 1) {
        None => {
            progress.searched = cr_at as u32;
            Ok(None)
        }
        Some(b'\n') => Ok(Some((integer(&input[at + 1..cr_at]).ok_or(invalid)?, cr_at + 2))),
        Some(_) => Err(invalid),
    }
}

fn at_most(number: i64, max: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|&number| number <= max)
}

fn line_of_words<'a>(input: &'a [u8], progress: &mut Progress) -> Result<Parsed<'a>, ProtocolError> {
    let window_end = LINE_LEN_MAX_BYTES + 1;
    let window = &input[..input.len().min(window_end)];
    let searched = progress.searched as usize;
    let Some(found) = window[searched..].iter().position(|&byte| byte == b'\n') else {
        if input.len() >= window_end {
            return Err(ProtocolError::InlineTooBig);
        }
        progress.searched = input.len() as u32;
        return Ok(Parsed::Incomplete);
    };
    let line = &input[..searched + found];
    let len_bytes = line.len() + 1;
    let command = inline::to_command(line.strip_suffix(b"\r").unwrap_or(line));
    match command.ok_or(ProtocolError::UnbalancedQuotes)? {
        command if command.is_empty() => Ok(Parsed::Nothing { len_bytes }),
        command => Ok(Parsed::Inline { command, len_bytes }),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
