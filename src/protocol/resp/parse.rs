//! Splits the bytes of a connection, which arrive in pieces, into commands.
//!
//! In: received bytes that follow the previous command. Out: the first command, borrowed from the input, or a result
//! that reports an incomplete or malformed command. Only [`ParseProgress`] is kept between calls. Memory is allocated
//! only for complete inline commands.
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
mod tests {
    use super::*;

    /// The result of parsing a stream: commands, and an error if parsing ended with one.
    #[derive(Debug, PartialEq, Eq)]
    struct Read {
        commands: Vec<Vec<Vec<u8>>>,
        error: Option<ProtocolError>,
        left_len: usize,
    }

    /// Parses pieces as a connection does: bytes that are not consumed are kept for the next call.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
        let mut read = Read { commands: Vec::new(), error: None, left_len: 0 };
        let mut progress = ParseProgress::default();
        let mut kept = Vec::new();
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let consumed = match parse(&kept, &mut progress) {
                    Ok(Parsed::Incomplete) => break,
                    Ok(Parsed::Nothing { len_bytes }) => len_bytes,
                    Ok(Parsed::Command { command, len_bytes }) => {
                        assert_eq!((command.bytes().len(), command.arg_count()), (len_bytes, command.args().count()));
                        read.commands.push(command.args().map(<[u8]>::to_vec).collect());
                        len_bytes
                    }
                    Ok(Parsed::Inline { command, len_bytes }) => {
                        read.commands.push(Command::new(&command).args().map(<[u8]>::to_vec).collect());
                        len_bytes
                    }
                    Err(error) => {
                        read.error = Some(error);
                        return read;
                    }
                };
                kept.drain(..consumed);
            }
            assert!(kept.len() < COMMAND_LEN_MAX_BYTES);
        }
        read.left_len = kept.len();
        read
    }

    fn error_of(input: &[u8]) -> Option<ProtocolError> {
        let whole = read([input]);
        // A short input is also parsed byte by byte.
        if input.len() < 1000 {
            assert_eq!(read(input.chunks(1)), whole, "{}", input.escape_ascii());
        }
        whole.error
    }

    const MIXED: &[u8] =
        b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\nPING\r\n*0\r\n\r\n \n*-1\r\n*1\r\n$0\r\n\r\nset 'a b' \"\\x00\\n\"\n\
    *3\r\n$4\r\nMGET\r\n$12\r\n012345678901\r\n$1\r\n*\r\n*1\r\n$4\r\nQUIT\r\necho x\r\r\n*2\r\n$1\r\n";

    #[test]
    fn commands_do_not_depend_on_how_their_bytes_are_split() {
        let whole = read([MIXED]);
        let words: Vec<String> =
            whole.commands.iter().map(|args| args.join(&b' ').escape_ascii().to_string()).collect();
        assert_eq!(words, ["GET a\\r\\n", "PING", "", "set a b \\x00\\n", "MGET 012345678901 *", "QUIT", "echo x"]);
        assert_eq!((whole.error, whole.left_len), (None, b"*2\r\n$1\r\n".len()));
        for first in 0..=MIXED.len() {
            for second in first..=MIXED.len() {
                assert_eq!(
                    read([&MIXED[..first], &MIXED[first..second], &MIXED[second..]]),
                    whole,
                    "{first}, {second}"
                );
            }
        }
        for len in 1..MIXED.len() {
            assert_eq!(read(MIXED.chunks(len)), whole, "pieces of {len}");
        }
    }

    #[test]
    fn malformed_bytes_are_rejected_with_the_text_of_redis() {
        for (input, text) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*\r\n", "invalid multibulk length"),
            ("*+1\r\n", "invalid multibulk length"),
            ("*01\r\n", "invalid multibulk length"),
            ("* 1\r\n", "invalid multibulk length"),
            ("*1\rx", "invalid multibulk length"),
            ("*9223372036854775808\r\n", "invalid multibulk length"),
            ("*1\r\nGET\r\n", "expected '$', got 'G'"),
            ("*1\r\n\r", "expected '$', got '\\r'"),
            ("*2\r\n$1\r\na\r\n:1\r\n", "expected '$', got ':'"),
            ("*1\r\n$x\r\n", "invalid bulk length"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$\r\n", "invalid bulk length"),
            ("*1\r\n$01\r\n", "invalid bulk length"),
            ("*1\r\n$1\rx", "invalid bulk length"),
            ("*1\r\n$1\r\nab\r\n", "invalid bulk length"),
            ("*1\r\n$1\r\na\r\r", "invalid bulk length"),
            ("get \"a\r\n", "unbalanced quotes in request"),
            ("get 'a'b\r\n", "unbalanced quotes in request"),
        ] {
            let error = error_of(input.as_bytes()).expect(input);
            assert_eq!(error.to_string(), format!("Protocol error: {text}"), "{input:?}");
        }
    }

    #[test]
    fn commands_before_an_error_are_parsed() {
        let read = read([&b"PING\r\n*1\r\n$4\r\nPING\r\n*x\r\nPING\r\n"[..]]);
        assert_eq!((read.commands.len(), read.error), (2, Some(ProtocolError::MultibulkLen)));
    }

    #[test]
    fn the_number_of_arguments_is_limited() {
        let count = |count: usize| error_of(format!("*{count}\r\n").as_bytes());
        assert_eq!(count(ARGS_MAX + 1), Some(ProtocolError::MultibulkLen));
        // No command has room for this many arguments, even if they are empty.
        assert_eq!(count(ARGS_MAX), Some(ProtocolError::CommandTooBig));
        let fitting = (COMMAND_LEN_MAX_BYTES - b"*699049\r\n".len()) / ARG_LEN_MIN_BYTES;
        assert_eq!((fitting, count(fitting), count(fitting + 1)), (699_049, None, Some(ProtocolError::CommandTooBig)));

        let mut command = format!("*{fitting}\r\n").into_bytes();
        command.extend(b"$0\r\n\r\n".repeat(fitting));
        let read = read(command.chunks(65_536));
        assert_eq!((read.commands[0].len(), read.error), (fitting, None));
    }

    #[test]
    fn the_length_of_an_argument_is_limited() {
        let mut command = format!("*1\r\n${BULK_LEN_MAX_BYTES}\r\n").into_bytes();
        assert_eq!(error_of(&command), None);
        command.resize(command.len() + BULK_LEN_MAX_BYTES, b'x');
        command.extend(b"\r\n");
        assert_eq!(read(command.chunks(4096)).commands[0][0].len(), BULK_LEN_MAX_BYTES);
        let one_over = format!("*1\r\n${}\r\n", BULK_LEN_MAX_BYTES + 1);
        assert_eq!(error_of(one_over.as_bytes()), Some(ProtocolError::BulkLen));
    }

    #[test]
    fn the_length_of_a_line_is_limited() {
        let line = |head: &str, len: usize, end: &str| {
            let mut line = head.as_bytes().to_vec();
            line.resize(head.len() + len, b'1');
            line.extend(end.bytes());
            line
        };
        for (head, taken, too_big) in [
            ("", None, ProtocolError::InlineTooBig),
            ("*", Some(ProtocolError::MultibulkLen), ProtocolError::MultibulkLenTooBig),
            ("*1\r\n$", Some(ProtocolError::BulkLen), ProtocolError::BulkLenTooBig),
        ] {
            // The limit includes the first byte of the line.
            let len = LINE_LEN_MAX_BYTES - usize::from(!head.is_empty());
            let end = if head.is_empty() { "\n" } else { "\r\n" };
            for cut in [1000, 65_536, usize::MAX] {
                let read_of = |input: &[u8]| read(input.chunks(cut)).error;
                assert_eq!(read_of(&line(head, len, "")), None);
                assert_eq!(read_of(&line(head, len, end)), taken);
                assert_eq!(read_of(&line(head, len + 1, "")), Some(too_big));
                assert_eq!(read_of(&line(head, len + 1, end)), Some(too_big));
            }
        }
    }

    #[test]
    fn the_length_of_a_command_is_limited() {
        let header = b"$1000000\r\n".len() + 2;
        let last = COMMAND_LEN_MAX_BYTES - b"*5\r\n".len() - 4 * (header + 1_000_000) - b"$194246\r\n\r\n".len();
        assert_eq!(last, 194_241);
        let command = |last: usize| {
            let mut command = b"*5\r\n".to_vec();
            for len in [1_000_000, 1_000_000, 1_000_000, 1_000_000, last] {
                command.extend(format!("${len}\r\n").bytes());
                command.resize(command.len() + len, b'x');
                command.extend(b"\r\n");
            }
            command
        };
        let longest = command(last);
        assert_eq!(longest.len(), COMMAND_LEN_MAX_BYTES);
        assert_eq!(read(longest.chunks(100_000)).commands[0].len(), 5);
        let one_over = command(last + 1);
        assert_eq!(read(one_over.chunks(100_000)).error, Some(ProtocolError::CommandTooBig));
        // The announced length causes the error; the argument itself has not arrived.
        let announced = &one_over[..one_over.len() - last - 3];
        assert_eq!(error_of(announced), Some(ProtocolError::CommandTooBig));
    }

    #[test]
    fn a_line_that_exceeds_the_limit_of_the_command_is_rejected() {
        let mut input = b"*6\r\n".to_vec();
        for len in [1_000_000, 1_000_000, 1_000_000, 1_000_000, 193_000] {
            input.extend(format!("${len}\r\n").bytes());
            input.resize(input.len() + len, b'x');
            input.extend(b"\r\n");
        }
        assert!(
            COMMAND_LEN_MAX_BYTES - input.len() < LINE_LEN_MAX_BYTES,
            "otherwise the limit of a line applies first"
        );
        input.push(b'$');
        for (len, error) in
            [(COMMAND_LEN_MAX_BYTES - 2, None), (COMMAND_LEN_MAX_BYTES - 1, Some(ProtocolError::CommandTooBig))]
        {
            input.resize(len, b'1');
            assert_eq!(read(input.chunks(1_000_000)).error, error);
            assert_eq!(read([&input[..]]).error, error);
        }
    }

    #[test]
    fn each_argument_of_a_command_in_many_pieces_is_parsed_once() {
        let args = 1000;
        let mut input = format!("*{args}\r\n").into_bytes();
        input.extend(b"$1\r\nx\r\n".repeat(args));
        let mut progress = ParseProgress::default();
        for end in 0..input.len() {
            let before = progress.at;
            assert!(matches!(parse(&input[..end], &mut progress), Ok(Parsed::Incomplete)));
            assert!(progress.at >= before && end - progress.at as usize <= b"$1\r\nx\r\n".len());
        }
        // The part of a line that was searched for a line end is not searched again.
        let mut progress = ParseProgress::default();
        for end in 1..1000 {
            assert!(matches!(parse(&b"x".repeat(end), &mut progress), Ok(Parsed::Incomplete)));
            assert_eq!(progress.searched as usize, end);
        }
    }
}
