//! Parsing of names in command-line options.

use crate::cluster::node_id_problem;

/// Parses the name of a node or a zone.
pub fn parse_name(text: &str) -> Result<String, &'static str> {
    node_id_problem(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Returns the first name that a list has twice.
pub fn repeated(names: &[String]) -> Option<&str> {
    let is_repeated = |(index, name): &(usize, &String)| names[..*index].contains(name);
    names.iter().enumerate().find(is_repeated).map(|(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_that_a_list_has_twice_is_found() {
        let names = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(repeated(&names("a,b,c")), None);
        assert_eq!(repeated(&names("a,b,c,b,a")), Some("b"));
    }

    #[test]
    fn names_are_parts_of_names_of_objects() {
        assert_eq!(parse_name("rack-1.east_2"), Ok("rack-1.east_2".to_owned()));
        for text in ["", "a b", "a/b", ".a", "ä", &"a".repeat(101)] {
            assert!(parse_name(text).unwrap_err().starts_with("expected at most 100 letters"), "{text:?}");
        }
    }
}
