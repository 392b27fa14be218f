//! JSON whose parts can be forged: texts that are no JSON of the crate `serde_json`, such as numbers beyond 64 bits, and
//! fields that occur twice.

use serde_json::Value;

use super::source::Source;

/// A value, or the text of one.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Texts that take the place of a value.
pub(crate) const SCALARS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "3",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "4294967297",
    "35184372088832",
    "35184372088833",
    "9007199254740991",
    "9007199254740992",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e308",
    "1e999",
    "0.5",
    "16383",
    "16384",
    "65535",
    "65536",
    "null",
    "true",
    "{}",
    "[]",
    "[[]]",
    "\"\"",
    "\"0\"",
    "\"a\"",
    "\"u64\"",
    "\"bytes\"",
    "\"absent\"",
    "\"activate\"",
    "\"primary\"",
    "\"0-16383\"",
    "\"16384-0\"",
    "\"5-4\"",
    "\"0-65536\"",
    "\"..\"",
    "\"/etc/passwd\"",
    "\"data/../x\"",
    "\"data/a/b\"",
    "\"../t/data/a/b\"",
    "\"a/b/c/d\"",
    "\"\\u001b[2J\\r\\n\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\u202e\"",
    "\"é€\u{1f600}\"",
    "\"00000000000000000000000000000000\"",
    "\"9999-12-31T23:59:59Z\"",
    "\"-0001-01-01T00:00:00Z\"",
    "\"x:u8\"",
];
/// Lengths of forged texts and lists.
const LENS: [usize; 6] = [100, 256, 513, 1025, 8193, 70_000];

impl Json {
    pub(crate) fn parse(json: &[u8]) -> Json {
        Json::from(serde_json::from_slice(json).expect("an original document is JSON"))
    }

    fn from(value: Value) -> Json {
        match value {
            Value::Array(list) => Json::List(list.into_iter().map(Json::from).collect()),
            Value::Object(fields) => Json::Object(fields.into_iter().map(|(key, v)| (key, Json::from(v))).collect()),
            scalar => Json::Text(scalar.to_string()),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Json::Text(scalar) => text.push_str(scalar),
            Json::List(list) => {
                text.push('[');
                for (at, element) in list.iter().enumerate() {
                    text.push_str(if at > 0 { "," } else { "" });
                    element.write(text);
                }
                text.push(']');
            }
            Json::Object(fields) => {
                text.push('{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    text.push_str(if at > 0 { "," } else { "" });
                    text.push_str(&format!("\"{key}\":"));
                    value.write(text);
                }
                text.push('}');
            }
        }
    }

    /// Returns the number of values, including this one.
    pub(crate) fn value_count(&self) -> usize {
        1 + match self {
            Json::Text(_) => 0,
            Json::List(list) => list.iter().map(Json::value_count).sum(),
            Json::Object(fields) => fields.iter().map(|(_, value)| value.value_count()).sum(),
        }
    }

    /// Returns the value with a number, in the order of the text.
    pub(crate) fn value(&mut self, number: usize) -> &mut Json {
        if number == 0 {
            return self;
        }
        let values: Vec<&mut Json> = match self {
            Json::Text(_) => Vec::new(),
            Json::List(list) => list.iter_mut().collect(),
            Json::Object(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
        };
        let mut left = number - 1;
        for value in values {
            let count = value.value_count();
            if left < count {
                return value.value(left);
            }
            left -= count;
        }
        unreachable!("the number is less than the number of values")
    }

    /// Changes a value in a way that the bytes describe.
    pub(crate) fn forge(&mut self, source: &mut Source) {
        let count = self.value_count();
        let forged = self.value(source.below(count));
        let len = LENS[source.below(LENS.len())];
        match (source.below(8), &mut *forged) {
            (0..3, _) => *forged = Json::Text(SCALARS[source.below(SCALARS.len())].to_owned()),
            (3, Json::List(list)) if !list.is_empty() => {
                let element = list[source.below(list.len())].clone();
                // Long elements would make the documents too long to be read.
                let times = if element.value_count() > 20 { len.min(1025) } else { len };
                list.extend(std::iter::repeat_n(element, times));
            }
            (4, Json::Object(fields)) if !fields.is_empty() => {
                drop(fields.remove(source.below(fields.len())));
            }
            (5, Json::Object(fields)) if !fields.is_empty() => {
                let (key, _) = fields[source.below(fields.len())].clone();
                fields.push((key, Json::Text(SCALARS[source.below(SCALARS.len())].to_owned())));
            }
            (6, _) => *forged = Json::Text(format!("{}{}{}", "[".repeat(len), forged.text(), "]".repeat(len))),
            (_, Json::Object(fields)) => {
                fields.push(("other".to_owned(), Json::Text(format!("\"{}\"", "x".repeat(len)))));
            }
            (_, _) => {
                *forged = Json::Text(format!("\"{}\"", ["x", "\\u001b", "é", "data/"][source.below(4)].repeat(len)));
            }
        }
    }
}
