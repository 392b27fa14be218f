//! One JSON object on one line, without a crate for it: what is written here is flat.

use std::fmt::Write;
use std::path::Path;

/// The fields of an object, as they are written.
#[derive(Default)]
pub(crate) struct Json(String);

impl Json {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        let _ = write!(self.0, "\"{name}\":");
    }

    /// A finite number, or a boolean: what stands for itself.
    pub(crate) fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        let _ = write!(self.0, "{value}");
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.0.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                control if control < ' ' => {
                    let _ = write!(self.0, "\\u{:04x}", control as u32);
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    pub(crate) fn path(&mut self, name: &str, value: &Path) {
        self.text(name, &value.to_string_lossy());
    }

    pub(crate) fn objects(&mut self, name: &str, objects: impl IntoIterator<Item = Json>) {
        self.name(name);
        let objects: Vec<String> = objects.into_iter().map(Json::end).collect();
        let _ = write!(self.0, "[{}]", objects.join(","));
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_json_is_escaped() {
        let mut json = Json::default();
        json.text("path", "a\"b\\c\nd é");
        json.number("n", 1.5);
        json.objects(
            "list",
            [1, 2].map(|n| {
                let mut each = Json::default();
                each.number("n", n);
                each
            }),
        );
        assert_eq!(json.end(), r#"{"path":"a\"b\\c\u000ad é","n":1.5,"list":[{"n":1},{"n":2}]}"#);
    }
}
