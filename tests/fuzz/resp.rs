//! Properties of the parser of the Redis protocol: it parses any bytes to the same commands, whether they arrive as a
//! whole or in pieces, and within its limits.

use zero_kv::protocol::resp::{
    BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES, Command, LINE_LEN_MAX_BYTES, ParseProgress, Parsed, ProtocolError, get,
    parse,
};

use crate::helpers::random::Random;

/// The result of parsing a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) commands: Vec<Vec<Vec<u8>>>,
    consumed: usize,
    pub(crate) error: Option<ProtocolError>,
}

/// Checks that the stream after the first eight bytes of `data` is parsed equally as a whole and in pieces. The first
/// eight bytes are the seed of the pieces' lengths.
pub fn check(data: &[u8]) {
    let Some((seed, stream)) = data.split_first_chunk() else { return };
    let whole = read(stream, stream.len().max(1), &mut Random(0));
    for piece_len_max in [1, 16, 4096] {
        let cut = read(stream, piece_len_max, &mut Random(u64::from_le_bytes(*seed)));
        assert_eq!(cut, whole, "in pieces of at most {piece_len_max}: {}", stream.escape_ascii());
    }
}

/// Parses `stream` as a connection does: each call of the parser gets the bytes that are not yet consumed and a piece
/// of 1 to `piece_len_max` more bytes.
pub(crate) fn read(stream: &[u8], piece_len_max: usize, random: &mut Random) -> Read {
    let mut read = Read::default();
    let mut progress = ParseProgress::default();
    let mut arrived = 0;
    while arrived < stream.len() {
        // The whole stream is one piece.
        let piece_len = if piece_len_max >= stream.len() { stream.len() } else { 1 + random.below(piece_len_max) };
        arrived = stream.len().min(arrived + piece_len);
        loop {
            let input = &stream[read.consumed..arrived];
            let quick = get(input).map(|(key, len_bytes)| (key.to_vec(), len_bytes));
            let (args, len_bytes) = match parse(input, &mut progress) {
                Ok(Parsed::Incomplete) => {
                    assert!(input.len() < COMMAND_LEN_MAX_BYTES);
                    break;
                }
                Ok(Parsed::Nothing { len_bytes }) => (Vec::new(), len_bytes),
                Ok(Parsed::Command { command, len_bytes }) => (args(command), len_bytes),
                Ok(Parsed::Inline { command, len_bytes }) => {
                    assert!(command.len() <= 4 * len_bytes + 16 && len_bytes <= LINE_LEN_MAX_BYTES + 1);
                    (args(Command::new(&command)), len_bytes)
                }
                Err(error) => {
                    assert_eq!(quick, None);
                    read.error = Some(error);
                    return read;
                }
            };
            assert!((1..=input.len().min(COMMAND_LEN_MAX_BYTES)).contains(&len_bytes));
            if let Some((key, quick_len)) = quick {
                assert!(
                    args.len() == 2 && args[0].eq_ignore_ascii_case(b"GET") && args[1] == key && len_bytes == quick_len
                );
            }
            read.consumed += len_bytes;
            if !args.is_empty() {
                read.commands.push(args);
            }
        }
    }
    read
}

fn args(command: Command) -> Vec<Vec<u8>> {
    let args: Vec<Vec<u8>> = command.args().map(<[u8]>::to_vec).collect();
    assert_eq!(args.len(), command.arg_count());
    assert!(!args.is_empty() && args.iter().all(|arg| arg.len() <= BULK_LEN_MAX_BYTES));
    args
}
