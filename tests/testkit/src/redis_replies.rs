//! Parsed replies of the Redis protocol in versions 2 and 3.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Text(String),
    Error(String),
    Integer(i64),
    Bytes(Vec<u8>),
    Null,
    List(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    /// Splits bytes into replies, and parses each.
    pub fn all(mut bytes: &[u8]) -> Vec<Reply> {
        let mut replies = Vec::new();
        while !bytes.is_empty() {
            replies.push(Reply::read(&mut bytes));
        }
        replies
    }

    fn read(bytes: &mut &[u8]) -> Reply {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a line's end");
        let line = std::str::from_utf8(&bytes[1..end]).unwrap();
        let kind = bytes[0];
        *bytes = &bytes[end + 2..];
        match kind {
            b'+' => Reply::Text(line.to_owned()),
            b'-' => Reply::Error(line.to_owned()),
            b':' => Reply::Integer(line.parse().unwrap()),
            b'_' => Reply::Null,
            b'$' | b'*' if line == "-1" => Reply::Null,
            b'$' | b'=' => {
                let (value, rest) = bytes.split_at(line.parse().unwrap());
                *bytes = rest.strip_prefix(b"\r\n").expect("a value's end");
                // A verbatim string begins with its format.
                Reply::Bytes(if kind == b'=' { value[4..].to_vec() } else { value.to_vec() })
            }
            b'*' | b'~' => Reply::List((0..line.parse().unwrap()).map(|_| Reply::read(bytes)).collect()),
            b'>' => Reply::Push((0..line.parse().unwrap()).map(|_| Reply::read(bytes)).collect()),
            b'%' => {
                let count: usize = line.parse().unwrap();
                Reply::Map((0..count).map(|_| (Reply::read(bytes), Reply::read(bytes))).collect())
            }
            _ => panic!("{:?} does not start a reply", char::from(kind)),
        }
    }

    #[track_caller]
    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(replies) => replies,
            other => panic!("{other:?} is not a list"),
        }
    }

    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Reply::Text(text) => text.clone(),
            Reply::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?} is not text"),
        }
    }

    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            other => panic!("{other:?} is not an integer"),
        }
    }

    /// Returns names and values, which are a flat list in version 2 and a map in version 3.
    #[track_caller]
    pub fn fields(&self) -> BTreeMap<String, Reply> {
        match self {
            Reply::Map(pairs) => pairs.iter().map(|(name, value)| (name.text(), value.clone())).collect(),
            list => list.list().chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect(),
        }
    }
}
