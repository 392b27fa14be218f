//! Typed tables as Redis hashes: compared with a real Redis that has the same fields, in both versions of the protocol,
//! inside and outside transactions, and driven by redis-py.

mod observed;
mod scans;

pub(crate) use observed::monitors_and_counters_of_hash_commands_are_equal;
pub(crate) use scans::{
    random_fields_are_fields_of_the_row, scan_finds_rows_by_the_type_hash, scans_of_wide_hashes_return_all_fields_once,
};

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use zero_kv::typed::{RowEncoder, Schema, TextParser, Value};

use super::more_reads::assert_equal_everywhere;
use super::served::{ask, converse, line};
use super::tools::ask_in_version_3;
use crate::helpers::encoder;
use crate::helpers::frames::connect;
use crate::helpers::random::Random;
use crate::helpers::redis_py::any_python;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::{Redis, command};
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;

/// The texts of a row's cells. `None` is a null cell.
type Texts = Vec<Option<Vec<u8>>>;

/// A column of every type, some of them nullable.
const COLUMNS: &[&str] = &[
    "flag:bool?",
    "i8:i8",
    "i16:i16?",
    "i32:i32",
    "i64:i64?",
    "u8:u8",
    "u16:u16?",
    "u32:u32",
    "u64:u64?",
    "f32:f32",
    "f64:f64?",
    "name:text?",
    "raw:bytes",
    "day:date?",
    "ms:timestamp(ms)",
    "us:timestamp(us)?",
    "ns:timestamp(ns)",
    "price:decimal(10,2)",
    "huge:decimal(38,10)?",
    "vector:list(f32)?",
    "triple:list(i16,3)",
    "days:list(date)?",
    "tags:list(text)?",
    "a name with spaces, \u{e9}, and a tab\t:u8?",
];

/// Rows whose texts are all short, which Redis stores as listpacks.
const SHORT_ROWS: u64 = 60;
/// The row with a long text.
const LONG_TEXT: u64 = 100;
/// The row with a long list.
const LONG_LIST: u64 = 101;
/// A row with a text of 65 bytes, and a row with a text of 64 bytes.
const LONGEST_SHORT: [u64; 2] = [102, 103];
const MISSING: u64 = 2000;

fn schema() -> Schema {
    Schema::new("id", COLUMNS.iter().map(|column| column.parse().unwrap())).unwrap()
}

/// Returns the texts of a row, with about a third of the nullable cells null.
fn texts(key: u64) -> Texts {
    let mut random = Random(key + 1);
    let number = key as i64 * 31 - 500;
    let name = match key {
        LONG_TEXT => "z".repeat(1_000_000),
        102 => "y".repeat(65),
        103 => "y".repeat(64),
        _ => format!("name {key}"),
    };
    let list = if key == LONG_LIST { 20_000 } else { key as usize % 6 };
    let list: Vec<String> = (0..list).map(|i| (i as f32 / 7.0).to_string()).collect();
    let texts: [Vec<u8>; 24] = [
        key.is_multiple_of(2).to_string().into(),
        (number % 100).to_string().into(),
        number.to_string().into(),
        (number * 1000).to_string().into(),
        (number * i64::from(u32::MAX)).to_string().into(),
        (key % 256).to_string().into(),
        key.to_string().into(),
        (key * 7).to_string().into(),
        (u64::MAX - key).to_string().into(),
        (number as f32 / 3.0).to_string().into(),
        ["NaN", "inf", "-inf", "1e300", "-0.1", "0", "-0", "5e-324"][key as usize % 8].into(),
        name.into(),
        vec![0, b'\r', b'\n', key as u8, 0xff],
        format!("20{:02}-0{}-{:02}", key % 100, 1 + key % 9, 1 + key % 28).into(),
        format!("1969-12-31T23:59:{:02}.{:03}Z", key % 60, key % 1000).into(),
        format!("2026-11-21T00:00:00.{key:06}Z").into(),
        format!("2026-11-21T19:09:38.{key:09}Z").into(),
        format!("{number}.{:02}", key % 100).into(),
        format!("-12345678901234567890.{key:010}").into(),
        format!("[{}]", list.join(",")).into(),
        format!("[{number},0,-1]").into(),
        format!("[\"2026-11-{:02}\",\"1970-01-01\"]", 1 + key % 28).into(),
        format!("[\"tag {key}\",\"\\\"\\n\u{e9}\"]").into(),
        (key % 200).to_string().into(),
    ];
    let mut is_null = |column: &str| column.ends_with('?') && key < SHORT_ROWS && random.below(3) == 0;
    let nulls: Vec<bool> = COLUMNS.iter().map(|column| is_null(column)).collect();
    texts.into_iter().zip(nulls).map(|(text, is_null)| (!is_null).then_some(text)).collect()
}

fn rows() -> BTreeMap<u64, Texts> {
    (0..SHORT_ROWS).chain([LONG_TEXT, LONG_LIST]).chain(LONGEST_SHORT).map(|key| (key, texts(key))).collect()
}

/// Returns the file of a typed table.
fn file<K: encoder::Keyed + Ord + Clone>(schema: &Schema, rows: &BTreeMap<K, Texts>) -> Vec<u8> {
    let mut row_encoder = RowEncoder::new(schema);
    let mut encoded = |texts: &Texts| {
        let mut parsers = vec![TextParser::default(); texts.len()];
        let cells = parsers.iter_mut().zip(texts).zip(schema.columns());
        let values: Vec<Value<'_>> = cells
            .map(|((parser, text), column)| match text {
                Some(text) => parser.parse(column.column_type, text).unwrap(),
                None => Value::Null,
            })
            .collect();
        row_encoder.encode(&values).unwrap().to_vec()
    };
    let rows = rows.iter().map(|(key, texts)| (key.clone(), encoded(texts))).collect();
    encoder::encode_typed(&rows, &schema.encode())
}

/// Serves a typed table.
fn serve<K: encoder::Keyed + Ord + Clone>(
    schema: &Schema,
    rows: &BTreeMap<K, Texts>,
    options: &[&str],
) -> (Scene, Server) {
    let scene = Scene::new();
    std::fs::write(scene.db(), file(schema, rows)).unwrap();
    let server = scene.serve(options);
    (scene, server)
}

/// Starts a Redis with hashes that have the same fields, in the order of the columns.
fn redis<K: ToString>(schema: &Schema, rows: &BTreeMap<K, Texts>) -> Result<Redis, Missing> {
    let redis = Redis::start()?;
    let mut stream = redis.connect();
    for (key, texts) in rows {
        let key = key.to_string();
        let mut words: Vec<&[u8]> = vec![b"HSET", key.as_bytes()];
        for (column, text) in schema.columns().iter().zip(texts) {
            if let Some(text) = text {
                words.extend([column.name.as_bytes(), text]);
            }
        }
        stream.write_all(&command(&words)).unwrap();
        let expected = format!(":{}\r\n", words.len() / 2 - 1);
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8(reply).unwrap(), expected);
    }
    Ok(redis)
}

/// Commands with replies that do not depend on the order of fields. `K` stands for a key.
const LINES: &[&str] = &[
    "HGET K name",
    "HGET K vector",
    "HGET K nope",
    "HGET K raw",
    "HGET K NAME",
    "hget K f64",
    "HMGET K name",
    "HMGET K name nope days i8 i8 us",
    "HMGET K nope",
    "HLEN K",
    "HEXISTS K name",
    "HEXISTS K u64",
    "HEXISTS K nope",
    "HSTRLEN K name",
    "HSTRLEN K vector",
    "HSTRLEN K nope",
    "HSTRLEN K price",
    "HSTRLEN K days",
    "TYPE K",
    "OBJECT ENCODING K",
    "EXISTS K K",
    "TOUCH K",
    "TTL K",
    "EXPIRETIME K",
    "GET K",
    "MGET K 2000 K",
    "STRLEN K",
    "GETRANGE K 0 1",
    "GETRANGE K x 1",
    "GETBIT K 0",
    "GETBIT K x",
    "HRANDFIELD K 0",
    "HRANDFIELD K 0 WITHVALUES",
    "HRANDFIELD K x",
    "HRANDFIELD K 1 FOO",
    "HRANDFIELD K 1 WITHVALUES x",
    "HRANDFIELD K -9223372036854775808",
    "HRANDFIELD K -9223372036854775807 WITHVALUES",
    "HRANDFIELD K 9223372036854775807 withvalues x",
    "HSCAN K x",
    "HSCAN K 0 COUNT 0",
    "HSCAN K 0 COUNT",
    "HSCAN K 0 COUNT x",
    "HSCAN K 0 MATCH",
    "HSCAN K 0 FOO",
    "HSCAN K 0 FOO 1",
    "HSCAN K 0 TYPE hash",
    "HGET K",
    "HGET K a b",
    "HMGET K",
    "HLEN K 1",
    "HEXISTS K",
    "HSTRLEN K",
    "HSCAN K",
    "HGETALL K 1",
    "HKEYS K 1",
    "HVALS K 1",
    "HGET",
    "HGETALL",
    "HRANDFIELD",
];

/// Commands with replies in the order of fields.
const ORDERED_LINES: &[&str] = &[
    "HGETALL K",
    "HKEYS K",
    "HVALS K",
    "HSCAN K 0",
    "HSCAN K 5",
    "HSCAN K 0 COUNT 3",
    "HSCAN K 0 MATCH i*",
    "HSCAN K 0 MATCH *6* COUNT 1",
    "HSCAN K 0 match nothing",
    "HRANDFIELD K 100",
    "HRANDFIELD K 100 WITHVALUES",
    "HRANDFIELD K 9223372036854775807",
];

/// Returns the commands for a key, in array form.
fn with_key<'l>(lines: &'l [&str], key: u64) -> impl Iterator<Item = Vec<u8>> + 'l {
    let key = key.to_string();
    lines.iter().map(move |text| {
        let words = text.split(' ').map(|word| if word == "K" { key.as_bytes() } else { word.as_bytes() });
        command(&words.collect::<Vec<_>>())
    })
}

pub(crate) fn replies_about_hashes_are_equal() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    for key in rows.keys().chain([&MISSING]) {
        let commands: Vec<Vec<u8>> = with_key(LINES, *key).collect();
        if [0, LONG_TEXT, MISSING].contains(key) {
            for command in &commands {
                assert_equal_everywhere(redis.socket(), served.socket(), command);
            }
        }
        assert_equal_everywhere(redis.socket(), served.socket(), &commands.concat());
        let is_listpack = *key < SHORT_ROWS || *key == LONGEST_SHORT[1] || *key == MISSING;
        if is_listpack {
            let commands: Vec<u8> = with_key(ORDERED_LINES, *key).flatten().collect();
            assert_equal_everywhere(redis.socket(), served.socket(), &commands);
        }
        let encoding = Reply::all(&ask(served.socket(), &[&format!("OBJECT ENCODING {key}")]));
        match *key {
            MISSING => assert_eq!(encoding[0], Reply::Null),
            _ => assert_eq!(encoding[0].text(), if is_listpack { "listpack" } else { "hashtable" }, "{key}"),
        }
    }
    Ok(())
}

/// Rows with a long text or list are hash tables in Redis, so the order of their fields differs.
pub(crate) fn hashes_with_long_values_have_the_same_fields() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    for key in [LONG_TEXT, LONG_LIST, LONGEST_SHORT[0]] {
        for ask in [ask as fn(&Path, &[&str]) -> Vec<u8>, ask_in_version_3] {
            for text in [format!("HGETALL {key}"), format!("HRANDFIELD {key} 100 WITHVALUES")] {
                let fields = [redis.socket(), served.socket()].map(|socket| {
                    let reply = Reply::all(&ask(socket, &[&text])).remove(0);
                    let pairs = match &reply {
                        // HRANDFIELD replies with pairs in version 3.
                        Reply::List(pairs) if matches!(pairs[0], Reply::List(_)) => {
                            Reply::List(pairs.iter().flat_map(|pair| pair.list().to_vec()).collect())
                        }
                        _ => reply,
                    };
                    format!("{:?}", pairs.fields())
                });
                assert!(fields[0] == fields[1], "{text}");
            }
            for text in [format!("HKEYS {key}"), format!("HVALS {key}")] {
                let [expected, found] = [redis.socket(), served.socket()].map(|socket| {
                    let replies = Reply::all(&ask(socket, &[&text]));
                    replies[0].list().iter().map(|reply| format!("{reply:?}")).collect::<BTreeSet<_>>()
                });
                assert!(expected == found, "{text}");
            }
        }
    }
    Ok(())
}

pub(crate) fn replies_to_long_pipelines_of_hash_commands_are_equal() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    let mut random = Random(0x4a54);
    let mut pipeline = |count: usize, kinds: usize| -> Vec<u8> {
        let one = |random: &mut Random| {
            let key = random.below(SHORT_ROWS as usize + 5);
            line(&match random.below(kinds) {
                0 => format!("HGETALL {key}"),
                1 => format!("HGET {key} name"),
                2 => format!("hmget {key} i8 nope vector day"),
                3 => format!("HLEN {key}"),
                4 => format!("GET {key}"),
                5 => format!("HMGET {LONG_TEXT} name i8"),
                _ => format!("HGET {LONG_LIST} vector"),
            })
        };
        (0..count).flat_map(|_| one(&mut random)).collect()
    };
    for commands in [pipeline(20_000, 1), pipeline(20_000, 5), pipeline(300, 7)] {
        assert_equal_everywhere(redis.socket(), served.socket(), &commands);
    }
    Ok(())
}

/// The same commands as inline commands are executed one at a time.
pub(crate) fn inline_hash_commands_get_the_replies_of_pipelined_ones() {
    let (schema, rows) = (schema(), rows());
    let (_scene, served) = serve(&schema, &rows, &[]);
    for key in rows.keys().chain([&MISSING]) {
        for text in ["HGETALL K", "HGET K name", "HGET K vector", "HMGET K f32 nope days raw name"] {
            let text = text.replace('K', &key.to_string());
            let inline = format!("{text}\r\nQUIT\r\n").into_bytes();
            let found = converse(connect(served.socket()), &inline);
            assert!(found == ask(served.socket(), &[&text]), "{text}");
        }
    }
}

/// Redis has no hash without fields.
pub(crate) fn a_row_of_nulls_is_a_hash_without_fields() {
    let schema = Schema::new("", ["a:u8?", "b:text?"].map(|column| column.parse().unwrap())).unwrap();
    let (_scene, served) = serve(&schema, &[(1, vec![None, None])].into(), &[]);
    let lines =
        ["EXISTS 1", "TYPE 1", "HLEN 1", "HGETALL 1", "HMGET 1 a b", "HRANDFIELD 1", "HRANDFIELD 1 -3", "HSCAN 1 0"];
    let replies = ask(served.socket(), &lines);
    let expected = ":1|+hash|:0|*0|*2|$-1|$-1|$-1|*0|*2|$1|0|*0|+OK|";
    assert_eq!(String::from_utf8(replies).unwrap().replace("\r\n", "|"), expected);
}

/// Rows that are not rows of the schema get errors, and the commands around them get their replies.
pub(crate) fn a_malformed_row_gets_an_error() {
    let schema = schema();
    let mut model: BTreeMap<u64, Vec<u8>> =
        (0..3).map(|key| (key, vec![0xff; [3, 150, 1_000_000][key as usize]])).collect();
    let whole = file(&schema, &[(9, texts(9))].into());
    let (start, len) = encoder::section(&whole, encoder::RECORDS);
    // The value follows the key and the response header.
    let value_len = u32::from_be_bytes(whole[start + 12..start + 16].try_into().unwrap()) as usize;
    assert!(value_len + 16 <= len);
    model.insert(9, whole[start + 16..start + 16 + value_len].to_vec());
    let scene = Scene::new();
    std::fs::write(scene.db(), encoder::encode_typed(&model, &schema.encode())).unwrap();
    let served = scene.serve(&[]);
    for key in 0..3 {
        for text in ["HGETALL K", "HMGET K i8 raw", "HGET K raw", "HLEN K", "HSCAN K 0", "HSTRLEN K raw", "HVALS K"] {
            let text = text.replace('K', &key.to_string());
            let replies = Reply::all(&ask(served.socket(), &["HGET 9 i8", &text, "HGET 9 i8"]));
            assert!(
                matches!(&replies[1], Reply::Error(text) if text.contains("not a row of the schema")),
                "{replies:?}"
            );
            let i8 = Reply::Bytes(texts(9)[1].clone().unwrap());
            assert_eq!([&replies[0], &replies[2]], [&i8, &i8]);
        }
    }
}

pub(crate) fn hashes_with_byte_keys_have_equal_replies() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let rows: BTreeMap<Vec<u8>, Texts> =
        rows.into_iter().map(|(key, texts)| (format!("user:{key}").into_bytes(), texts)).collect();
    let named = rows.iter().map(|(key, texts)| (String::from_utf8(key.clone()).unwrap(), texts.clone())).collect();
    let redis = redis(&schema, &named)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    let commands: Vec<u8> = (0..SHORT_ROWS + 3)
        .flat_map(|key| {
            [format!("HGETALL user:{key}"), format!("HMGET user:{key} name day"), format!("HLEN user:{key}")]
        })
        .flat_map(|text| line(&text))
        .collect();
    assert_equal_everywhere(redis.socket(), served.socket(), &commands);
    Ok(())
}

pub(crate) fn users_need_the_permission_for_the_command_and_the_key() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let scene = Scene::new();
    std::fs::write(scene.db(), file(&schema, &rows)).unwrap();
    let rules =
        ["user hashes on nopass ~1* +@hash", "user strings on nopass ~* +@string", "user one on nopass ~* +hget"];
    let users = scene.path("users.acl");
    std::fs::write(&users, rules.join("\n") + "\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).unwrap();
    let served = scene.serve(&["--users", users.to_str().unwrap()]);
    for rule in rules {
        let rule = rule.replacen("user ", "ACL SETUSER ", 1);
        assert_eq!(ask(redis.socket(), &[&rule]), b"+OK\r\n+OK\r\n");
    }
    for user in ["hashes", "strings", "one"] {
        let auth = format!("AUTH {user} x");
        let lines =
            [&auth, "HGET 1 i8", "HGET 2 i8", "HGETALL 1", "HGETALL 2", "HMGET 1 i8", "HLEN 1", "GET 1", "MGET 1"];
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| ask(socket, &lines));
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{user}");
    }
    Ok(())
}

pub(crate) fn redis_py_reads_hashes() -> Result<(), Missing> {
    let python = any_python()?;
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/hashes.py");
    for socket in [redis.socket(), served.socket()] {
        for protocol in ["2", "3"] {
            let mut run = Command::new(&python);
            let output = run.arg("-B").arg(script).arg(socket).arg(protocol).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{}: {}", socket.display(), String::from_utf8_lossy(&text));
        }
    }
    Ok(())
}
