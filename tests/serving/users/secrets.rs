//! A client without permissions learns nothing about keys.

use std::io::{Read, Write};

use zero_kv::bake::Keys;
use zero_kv::protocol::native::Op;
use zero_kv::protocol::resp::commands::{COMMANDS, Id, Spec};

use super::*;
use crate::helpers::frames::{answer, expect, request};
use crate::helpers::reference_server::range_body;
use crate::helpers::rows::bake_text;

/// Returns commands with `key` as each of their arguments: one with the minimum number of arguments, and one with two
/// more if the command accepts more.
fn commands_about(spec: &Spec, key: &str) -> Vec<Vec<u8>> {
    let names: Vec<&str> = spec.name.split('|').collect();
    let least = spec.arity.unsigned_abs() as usize;
    let counts = if spec.arity < 0 { vec![least, least + 2] } else { vec![least] };
    let with = |count: usize| {
        let keys = vec![key; count.saturating_sub(names.len())];
        command(&[names.clone(), keys].concat().iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
    };
    counts.into_iter().map(with).collect()
}

/// Returns a reply with `KEY` for each argument that it repeats.
fn without_argument(reply: &[u8], key: &str) -> String {
    let arguments = [format!("$1\\r\\n{key}\\r\\n"), format!("\\'{key}\\'")];
    arguments.iter().fold(reply.escape_ascii().to_string(), |reply, argument| reply.replace(argument, "KEY"))
}

/// Returns whether the reply to a command differs from one connection or moment to the next.
fn is_volatile(spec: &Spec) -> bool {
    matches!(spec.id, Id::Time | Id::Hello | Id::Info | Id::ConfigGet | Id::ClientId | Id::ClientInfo | Id::ClientList)
}

/// Returns a server with a table of numbers and a server with a table of text keys, with the same users.
fn scenes(users: &str) -> [Scene; 2] {
    let texts = Table { folder: tempfile::tempdir().unwrap(), model: Default::default() };
    bake_text(&texts.db(), Keys::BYTES, b"7,seven\nkey,value\n");
    [Scene::new(users), Scene::of(texts, users)]
}

/// Returns counters that change if a key is looked up. The number of verified blocks is none of them, because the
/// server also verifies blocks when it starts.
fn used(scene: &Scene) -> [u64; 2] {
    ["hits", "misses"].map(|name| scene.server.number(name))
}

#[test]
fn a_client_without_keys_gets_the_same_replies_for_every_table_and_key() {
    let [numbers, texts] =
        scenes("user default off\nuser none on nopass +@all -quit\nuser other on nopass ~other:* +@all");
    let before = [used(&numbers), used(&texts)];
    let specs = COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    for spec in specs.filter(|spec| !is_volatile(spec) && spec.id != Id::Quit) {
        for login in [&[][..], &["AUTH", "none", "x"], &["AUTH", "other", "x"]] {
            let login = if login.is_empty() {
                Vec::new()
            } else {
                command(&login.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
            };
            let replies = |scene: &Scene, key: &str| -> Vec<String> {
                let reply = |about: Vec<u8>| all_replies(scene.tcp(), &[&login[..], &about].concat());
                let replies = commands_about(spec, key).into_iter().map(reply);
                replies.map(|reply| without_argument(&reply, key)).collect()
            };
            for key in ["7", "9", "x"] {
                let (found, expected) = (replies(&numbers, key), replies(&texts, key));
                assert_eq!(found, expected, "{} {key} after {:?}", spec.name, login.escape_ascii().to_string());
            }
            // The first table has 7, the second table lacks 9.
            assert_eq!(replies(&numbers, "7"), replies(&texts, "9"), "{}", spec.name);
        }
    }
    for scene in [&numbers, &texts] {
        let info = all_replies(scene.logged_in("none"), &command(&[b"INFO"]));
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains("redis_version") && info.contains("# Stats"), "{info}");
        for secret in ["keys=", "used_memory", "# Keyspace", "# ZeroKV", "digest", "rows", "file_len_bytes"] {
            assert!(!info.contains(secret), "{secret}: {info}");
        }
    }
    assert_eq!([used(&numbers), used(&texts)], before, "nothing was looked up");
}

#[test]
fn a_native_client_without_keys_gets_the_same_responses_for_every_table_and_key() {
    let [numbers, texts] = scenes("user default off\nuser none on nopass +@all\nuser other on nopass ~other:* +@all");
    let before = [used(&numbers), used(&texts)];
    for op in Op::ALL.into_iter().filter(|op| *op != Op::Auth) {
        for (login, status) in [(None, UNAUTHENTICATED), (Some("none"), NOT_PERMITTED), (Some("other"), NOT_PERMITTED)]
        {
            for scene in [&numbers, &texts] {
                for key in [7_u64, 9, u64::MAX] {
                    let bodies = [range_body(0, 0, b"", b""), key.to_string().into_bytes(), b"key".to_vec()];
                    let mut requests = vec![request(op as u32, key).to_vec()];
                    requests.extend(bodies.iter().map(|body| long(op as u32, body)));
                    let mut stream = scene.tcp();
                    if let Some(user) = login {
                        stream.write_all(&auth(user, "x")).unwrap();
                        expect(&mut stream, &answer(0, b""));
                    }
                    for request in requests {
                        stream.write_all(&request).unwrap();
                        // An op is unknown in the other form of a request, and a ping needs no keys.
                        let code = u32::from_be_bytes(request[..4].try_into().unwrap());
                        let is_known = Op::from_code(code).or(Op::from_long_code(code)).is_some();
                        let expected = match login {
                            Some(_) if !is_known => 2,
                            Some(_) if op == Op::Ping => 0,
                            // A user of any key may learn the columns and the nodes, which these tables do not have,
                            // the number of the generation, the type of the keys, and when the table changes.
                            Some("other") if matches!(op, Op::Schema | Op::Topology) => 1,
                            Some("other") if matches!(op, Op::Generation | Op::KeyType | Op::Track) => 0,
                            Some("other") if op == Op::Select => 2,
                            _ => status,
                        };
                        let value: &[u8] = match op {
                            Op::Generation if expected == 0 => &1_u64.to_be_bytes(),
                            Op::KeyType if expected == 0 && std::ptr::eq(scene, &numbers) => b"u64",
                            Op::KeyType if expected == 0 => b"bytes",
                            // A state has a hash of the server's run.
                            Op::Track if expected == 0 => &[0; 16],
                            _ => b"",
                        };
                        let mut expected = answer(expected, value);
                        let mut found = vec![0; expected.len()];
                        stream.read_exact(&mut found).unwrap();
                        if op == Op::Track {
                            found.truncate(8);
                            expected.truncate(8);
                        }
                        assert_eq!(found, expected, "{op:?} {login:?}");
                    }
                }
            }
        }
    }
    assert_eq!([used(&numbers), used(&texts)], before, "nothing was looked up");
}
