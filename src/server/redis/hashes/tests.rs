//! Tests of replies to hash commands: compared with a model, and bounded in each pass.

use std::sync::Arc;

use super::*;
use crate::protocol::resp::Reply;
use crate::server::turns::steps::PASS_STEPS_MAX;
use crate::typed::{ElementType, List, RowEncoder, Schema, Value, write_text};

/// Returns the fields of a schema with these columns.
fn fields(columns: &str) -> Fields {
    Fields::new(Arc::new(Schema::new("", columns.split(' ').map(|column| column.parse().unwrap())).unwrap()))
}

/// Returns the elements that a reply appends to its header, and the number of passes.
fn send(mut reply: HashReply, fields: &Fields, row: &[u8], command: &[u8], version: Version) -> (Vec<u8>, usize) {
    let row = TypedRow::new(fields.schema(), row).unwrap();
    let (mut responses, mut sent, mut passes) = (Responses::new(), Vec::new(), 0);
    loop {
        passes += 1;
        responses.clear();
        let step = reply.more(fields, &row, 0, &Command::new(command), &mut Out::new(&mut responses, version));
        assert!(responses.copied().len() <= 64 << 10, "{}", responses.copied().len());
        // A field adds at most the steps of one piece of a list.
        assert!(responses.steps().total() <= PASS_STEPS_MAX + 200);
        sent.extend_from_slice(responses.copied());
        match step {
            WorkStep::Done => return (sent, passes),
            WorkStep::Full | WorkStep::Yield => {}
            WorkStep::Close | WorkStep::Load | WorkStep::Next => panic!("the row is valid"),
        }
    }
}

/// Returns the texts of a row's cells.
fn texts(fields: &Fields, row: &[u8]) -> Vec<Option<Vec<u8>>> {
    let row = TypedRow::new(fields.schema(), row).unwrap();
    let text = |value: Value<'_>| {
        let mut text = Vec::new();
        write_text(&value, &mut text);
        (value != Value::Null).then_some(text)
    };
    row.values().map(|value| text(value.unwrap())).collect()
}

/// Returns what [`send`] should return for these columns.
fn expected(fields: &Fields, texts: &[Option<Vec<u8>>], columns: &[u16], parts: Parts, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = Reply::new(&mut bytes, version);
    for column in columns.iter().map(|column| usize::from(*column)) {
        if parts == Parts::Pairs && version == Version::Resp3 {
            out.array(2);
        }
        if !matches!(parts, Parts::Values | Parts::Lengths) {
            out.bulk(fields.schema().columns()[column].name.as_bytes());
        }
        match (&texts[column], parts) {
            (_, Parts::Names) => {}
            (text, Parts::Lengths) => out.integer(text.as_ref().map_or(0, Vec::len) as i64),
            (Some(text), _) => out.bulk(text),
            (None, _) => out.null(),
        }
    }
    bytes
}

#[test]
fn replies_of_any_length_have_the_texts_of_the_cells() {
    let fields = fields("a:list(f64) b:text? c:u8? d:list(timestamp(ns)) e:bytes f:list(u8)?");
    let data: Vec<u8> = (0..80_000_u32).flat_map(|number| number.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    let list = |element: &str, count: usize| {
        let element = ElementType::new(element.parse().unwrap()).unwrap();
        Value::List(List::new(element, &data[..count * element.len_bytes()]).unwrap())
    };
    let mut encoder = RowEncoder::new(fields.schema());
    for count in [0, 1, 127, 128, 129, 256, 257, 5000, 40_000] {
        let values = [
            list("f64", count),
            if count % 2 == 0 { Value::Null } else { Value::Text("text") },
            Value::Uint(7),
            list("timestamp(ns)", count / 2),
            Value::Bytes(&data[..count.min(4000)]),
            if count % 3 == 0 { Value::Null } else { list("u8", count) },
        ];
        let row = encoder.encode(&values).unwrap().to_vec();
        let texts = texts(&fields, &row);
        for version in [Version::Resp2, Version::Resp3] {
            for parts in [Parts::Names, Parts::Values, Parts::Both, Parts::Pairs, Parts::Lengths] {
                let columns: Vec<u16> = vec![5, 0, 1, 2, 3, 4, 0, 1];
                let items = Items::Columns { columns: columns.clone().into(), next: 0 };
                let (found, passes) = send(HashReply::new(items, parts), &fields, &row, b"", version);
                assert!(found == expected(&fields, &texts, &columns, parts, version), "{count} elements");
                assert!(passes > 1 || count < 40_000 || parts == Parts::Names, "a long reply takes several passes");
            }
        }
    }
}

#[test]
fn fields_of_arguments_and_random_fields_are_sent_in_bounded_passes() {
    let fields = fields("a:u8? b:u16 c:text");
    let row =
        RowEncoder::new(fields.schema()).encode(&[Value::Null, Value::Uint(500), Value::Text("x")]).unwrap().to_vec();
    let texts = texts(&fields, &row);
    let names = ["a", "b", "c", "nope", "b"].repeat(200);
    let words: Vec<&str> = ["HMGET", "k"].into_iter().chain(names.iter().copied()).collect();
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| command.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
    let mut args = Command::new(&command).args();
    args.nth(1);
    let reply = HashReply::new(Items::Args { next_arg: args.offset_bytes() }, Parts::Values);
    let (found, _) = send(reply, &fields, &row, &command, Version::Resp2);
    let one = [
        b"$-1\r\n".to_vec(),
        expected(&fields, &texts, &[1, 2], Parts::Values, Version::Resp2),
        b"$-1\r\n".to_vec(),
        expected(&fields, &texts, &[1], Parts::Values, Version::Resp2),
    ];
    assert!(found == one.concat().repeat(200));

    let items = Items::Random { columns: Arc::from(vec![1, 2]), left: 100_000, random: 5 };
    let (found, passes) = send(HashReply::new(items, Parts::Pairs), &fields, &row, b"", Version::Resp2);
    let pairs = [1_u16, 2].map(|column| expected(&fields, &texts, &[column], Parts::Pairs, Version::Resp2));
    let (mut rest, mut counts) = (&found[..], [0; 2]);
    while !rest.is_empty() {
        let chosen = pairs.iter().position(|pair| rest.starts_with(pair)).expect("a field with its value");
        counts[chosen] += 1;
        rest = &rest[pairs[chosen].len()..];
    }
    assert_eq!(counts[0] + counts[1], 100_000);
    assert!(counts.iter().all(|count| (48_000..52_000).contains(count)), "{counts:?}");
    assert!(passes > 10, "{passes}");
}

#[test]
fn every_choice_of_fields_without_repetition_is_equally_likely() {
    let mut counts = std::collections::BTreeMap::new();
    for random in 0..60_000_u64 {
        let mut responses = Responses::new();
        let wanted = Some(Wanted { count: 2, with_values: false });
        // Sessions pass numbers of a pseudorandom sequence.
        let mut out = Out::new(&mut responses, Version::Resp2);
        let outcome = random_fields(vec![0, 1, 2, 3], wanted, mix(mix(random)), &mut out);
        let Outcome::Work(Work::Hash(HashReply { items: Items::Columns { columns, .. }, .. })) = outcome else {
            panic!("columns")
        };
        *counts.entry(columns.to_vec()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 6);
    assert!(counts.values().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
}
