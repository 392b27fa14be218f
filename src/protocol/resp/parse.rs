//! Splits the bytes of a connection, which arrive in pieces, into commands.
//!
//! In: received bytes that follow the previous command. Out: the first command, borrowed from the input, or a result
//! that reports an incomplete or malformed command. Only [`ParseProgress`] is kept between calls. Memory is allocated only
//! for complete inline commands.
//!
//! Redis accepts any two bytes as the end of a line or of an argument. This parser requires CR and LF, because other
//! bytes show that the client and the server disagree about the start of the next command.

use thiserror::Error;

use super::{ARGS_MAX, BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES, Command, LINE_LEN_MAX_BYTES, inline, integer};

/// Minimum length of an argument with its framing.
const ARG_LEN_MIN_BYTES: usize = b"$0\r\n\r\n".len();

/// The state of parsing an incomplete command. With this state, the next call continues at the line in which parsing
/// stopped. Each connection has its own state.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParseProgress {
    /// Offset of the next argument, or 0 while the number of arguments is unknown.
    at: u32,
    args_left: u32,
    /// Offset where the search for the end of the current line continues. The line does not end before this offset.
    searched: u32,
}

/// The result of parsing the first command in a client's bytes.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A command in array form.
    Command {
        /// The command.
        command: Command<'a>,
        /// Number of bytes to consume.
        len_bytes: usize,
    },
    /// An inline command.
    Inline {
        /// The command in array form, for [`Command::new`].
        command: Vec<u8>,
        /// Number of bytes to consume: the length of the line, including its line end.
        len_bytes: usize,
    },
    /// An empty line or an empty array, which gets no reply.
    Nothing {
        /// Number of bytes to consume.
        len_bytes: usize,
    },
    /// An incomplete command, which is shorter than [`COMMAND_LEN_MAX_BYTES`]. Call again when more bytes have arrived.
    Incomplete,
}

/// The reason why bytes are not a command. The message is Redis's text for the reply, without `ERR`.
///
/// After this error, the rest of the connection's bytes cannot be split into commands.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is not a number, or exceeds [`ARGS_MAX`].
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLen,
    /// An argument does not start with `$`, which must precede its length.
    #[error("Protocol error: expected '$', got '{}'", got.escape_ascii())]
    ExpectedDollar {
        /// The byte found instead of `$`.
        got: u8,
    },
    /// An argument's length is not a number, exceeds [`BULK_LEN_MAX_BYTES`], or does not match the argument.
    #[error("Protocol error: invalid bulk length")]
    BulkLen,
    /// An inline command is longer than [`LINE_LEN_MAX_BYTES`].
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// The line with the count of arguments is too long.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLenTooBig,
    /// The line with an argument's length is too long.
    #[error("Protocol error: too big bulk count string")]
    BulkLenTooBig,
    /// A quote is not closed, or is closed within a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The command is longer than [`COMMAND_LEN_MAX_BYTES`].
    #[error("Protocol error: too big command, the limit is {COMMAND_LEN_MAX_BYTES} bytes")]
    CommandTooBig,
}

/// Parses the command at the start of `input`.
///
/// After [`Parsed::Incomplete`], pass the same bytes followed by more, and the same `progress`. Every other [`Parsed`]
/// value resets `progress`. The result does not depend on how the bytes are divided among calls.
///
/// # Errors
/// [`ProtocolError`]. An error is returned as soon as it is certain, even if the rest of the command has not arrived.
pub fn parse<'a>(input: &'a [u8], progress: &mut ParseProgress) -> Result<Parsed<'a>, ProtocolError> {
    let parsed = match input.first() {
        None => Parsed::Incomplete,
        Some(b'*') => array(input, progress)?,
        Some(_) => inline_command(input, progress)?,
    };
    if !matches!(parsed, Parsed::Incomplete) {
        *progress = ParseProgress::default();
    }
    Ok(parsed)
}

fn array<'a>(input: &'a [u8], progress: &mut ParseProgress) -> Result<Parsed<'a>, ProtocolError> {
    if progress.at == 0 {
        let errors = [ProtocolError::MultibulkLen, ProtocolError::MultibulkLenTooBig];
        let Some((count, line_end)) = count_line(input, progress, errors)? else {
            return Ok(Parsed::Incomplete);
        };
        if count <= 0 {
            return Ok(Parsed::Nothing { len_bytes: line_end });
        }
        let arg_count = at_most(count, ARGS_MAX).ok_or(ProtocolError::MultibulkLen)?;
        progress.advance_to(line_end, arg_count)?;
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
        next.advance_to(arg_end + 2, progress.args_left as usize - 1)?;
        match input.get(arg_end..arg_end + 2) {
            None => return Ok(Parsed::Incomplete),
            Some(b"\r\n") => *progress = next,
            Some(_) => return Err(ProtocolError::BulkLen),
        }
    }
    let len_bytes = progress.at as usize;
    Ok(Parsed::Command { command: Command::new(&input[..len_bytes]), len_bytes })
}

impl ParseProgress {
    /// Advances to the argument at `at`. Fails if the command would exceed its maximum length even if all remaining
    /// arguments were as short as possible.
    fn advance_to(&mut self, at: usize, args_left: usize) -> Result<(), ProtocolError> {
        if at + args_left * ARG_LEN_MIN_BYTES > COMMAND_LEN_MAX_BYTES {
            return Err(ProtocolError::CommandTooBig);
        }
        // `at` and `args_left` are at most [`COMMAND_LEN_MAX_BYTES`], which fits into 32 bits.
        *self = ParseProgress { at: at as u32, args_left: args_left as u32, searched: at as u32 };
        Ok(())
    }
}

/// Parses the line at `progress.at`. Returns the number that follows the line's first byte, and the offset at which the
/// next line starts. Returns `None` if the line is incomplete. `invalid` is the error for a line without a valid
/// number. `too_big` is the error for a line that is too long.
fn count_line(
    input: &[u8],
    progress: &mut ParseProgress,
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

fn inline_command<'a>(input: &'a [u8], progress: &mut ParseProgress) -> Result<Parsed<'a>, ProtocolError> {
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
mod tests;
