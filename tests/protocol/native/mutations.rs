//! Damaged streams of requests: the server stays up, and sends the responses that `docs/PROTOCOL.md` specifies.

use super::long::{animals, assert_same_bytes, exchange, numbers};
use super::ordered::Draw;
use crate::helpers::random::random;
use crate::helpers::reference_server::Reference;

/// Damages a stream of requests in one place.
fn mutate(draw: &mut Draw<impl FnMut() -> u64>, stream: &mut Vec<u8>) {
    let at = draw.below(stream.len());
    // Most changes are to ops, lengths, and flags.
    let at = if draw.below(3) > 0 { at / 16 * 16 + draw.below(8) } else { at }.min(stream.len() - 1);
    match draw.below(6) {
        0 => stream[at] = u8::try_from(draw.below(256)).unwrap(),
        1 => stream[at] ^= 1 << draw.below(8),
        2 => stream.truncate(at.max(1)),
        3 => drop(stream.drain(at..(at + 1 + draw.below(40)).min(stream.len() - 1).max(at))),
        4 => {
            let copied = stream[at..(at + 1 + draw.below(40)).min(stream.len())].to_vec();
            let to = draw.below(stream.len());
            stream.splice(to..to, copied);
        }
        _ => stream[at] = [0, 1, 2, 5, 0x7f, 0x80, 0xff][draw.below(7)],
    }
}

#[test]
fn a_damaged_stream_of_requests_is_answered_as_documented() {
    let seed = 0xdead_5eed;
    println!("seed {seed}");
    let mut draw = Draw(random(seed));
    let long_values = Reference::of_bytes((0..50_u8).map(|i| (vec![b'a' + i % 26, i], vec![i; 3000])));
    for table in [numbers(), animals(), long_values] {
        let mut server = table.serve();
        for round in 0..400 {
            let mut stream: Vec<u8> = (0..1 + draw.below(20)).flat_map(|_| draw.any_request(&table)).collect();
            for _ in 0..1 + draw.below(4) {
                mutate(&mut draw, &mut stream);
            }
            let answers = exchange(&mut server.connect(), &stream);
            // Another first byte selects the other protocol.
            if stream[0] == 0 {
                assert!(answers == table.answers_given(&stream, &answers).0, "round {round}: {stream:x?}");
            }
            let sound = draw.any_request(&table);
            assert_same_bytes(&exchange(&mut server.connect(), &sound), &table.answers(&sound).0);
        }
        assert!(server.is_alive());
    }
}
