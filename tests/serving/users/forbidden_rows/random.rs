//! Random commands and requests: words that are valid somewhere, in any place.

use zero_kv::protocol::native::Op;
use zero_kv::protocol::resp::commands::Id;

use super::commands::{all_specs, encoded, is_volatile, lines, without_id};
use super::{Kind, Pair, RESTRICTED};
use crate::helpers::frames::request;
use crate::helpers::random::{Random, seed};
use crate::helpers::redis_server::command;
use crate::helpers::reference_server::{long, range_body};
use crate::serving::users::auth;

const CONVERSATIONS: usize = 60;
const COMMANDS_PER_CONVERSATION: usize = 200;

/// Words of options and numbers of many commands.
const WORDS: [&str; 38] = [
    "PREFIX",
    "REV",
    "LIMIT",
    "FROM",
    "MATCH",
    "COUNT",
    "TYPE",
    "BY",
    "GET",
    "STORE",
    "LEN",
    "IDX",
    "WITHSCORES",
    "WITHVALUES",
    "NOVALUES",
    "BYTE",
    "BIT",
    "SAMPLES",
    "0",
    "1",
    "-1",
    "2",
    "100",
    "1000000",
    "+",
    "-",
    "[",
    "(",
    "*",
    "?",
    "",
    "string",
    "hash",
    "16383",
    "9223372036854775807",
    "u8",
    "a",
    "everything",
];

/// Returns a random command. Its reply is not random, and it waits for no time to pass.
fn random_command(random: &mut Random, kind: Kind) -> Vec<u8> {
    let specs: Vec<_> = all_specs()
        .filter(|spec| !is_volatile(spec.id))
        .filter(|spec| {
            // Failed logins are delayed. QUIT and CLIENT KILL end the connection.
            !matches!(spec.id, Id::Auth | Id::Hello | Id::Quit | Id::ClientKill | Id::HRandField)
        })
        .collect();
    let spec = specs[random.below(specs.len())];
    if random.below(4) == 0 {
        let lines: Vec<String> = lines(kind, spec).into_iter().collect();
        return match lines.len() {
            0 => encoded("PING"),
            count => encoded(&lines[random.below(count)]),
        };
    }
    let mut words: Vec<Vec<u8>> = spec.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    for _ in 0..random.below(7) {
        let key = kind.keys()[random.below(9)];
        words.push(match random.below(8) {
            0..=2 => key.into(),
            3 => kind.prefix().into(),
            4 => [["[", "(", "", "0"][random.below(4)], key].concat().into(),
            5 => [key, "*"].concat().into(),
            6 if random.below(8) == 0 => {
                let len = random.below(5);
                random.bytes(len)
            }
            _ => WORDS[random.below(WORDS.len())].into(),
        });
    }
    command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn random_request(random: &mut Random, kind: Kind) -> Vec<u8> {
    let op = Op::ALL[random.below(Op::ALL.len())];
    // Failed logins are delayed, and the state in a response to Track differs between any two servers.
    let op = if matches!(op, Op::Auth | Op::Track) { Op::Get } else { op } as u32;
    let key = |random: &mut Random| match random.below(3) {
        0 => kind.keys()[random.below(9)].as_bytes().to_vec(),
        1 => [1_u64, 15, 2, 20, u64::MAX][random.below(5)].to_be_bytes().to_vec(),
        _ => kind.prefix().as_bytes().to_vec(),
    };
    match random.below(3) {
        0 => request(op, [1, 15, 19, 2, 20, 3, u64::MAX][random.below(7)]).to_vec(),
        1 => long(op, &key(random)),
        _ => {
            let (start, end) = (key(random), key(random));
            long(op, &range_body(random.below(64) as u32, random.below(50) as u32, &start, &end))
        }
    }
}

#[test]
fn random_conversations_do_not_depend_on_forbidden_rows() {
    let mut random = Random(seed("forbidden rows"));
    for kind in Kind::ALL {
        let pair = Pair::new(kind);
        for number in 0..CONVERSATIONS {
            let user = RESTRICTED[random.below(RESTRICTED.len())];
            let is_native = random.below(4) == 0;
            let parts: Vec<Vec<u8>> = (0..COMMANDS_PER_CONVERSATION)
                .map(|_| match is_native {
                    true => random_request(&mut random, kind),
                    false => random_command(&mut random, kind),
                })
                .collect();
            let login = if is_native { auth(user, "any") } else { encoded(&format!("AUTH {user} any")) };
            let resp = if !is_native && random.below(2) == 0 { encoded("HELLO 3") } else { Vec::new() };
            let bytes = [login, resp, parts.concat()].concat();
            let [first, second] = [0, 1].map(|at| without_id(&pair.responses(at, &bytes)));
            if first != second {
                let at = first.bytes().zip(second.bytes()).position(|(a, b)| a != b).unwrap_or_default();
                let from = at.saturating_sub(300);
                let shown = |text: &str| text.get(from..text.len().min(at + 300)).unwrap_or_default().to_owned();
                panic!(
                    "{kind:?}: {user}: conversation {number}:\n{}\n{}\nto {}",
                    shown(&first),
                    shown(&second),
                    bytes.escape_ascii()
                );
            }
        }
    }
}
