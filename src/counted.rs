//! Numbers of things in text for people.
//!
//! In: a number, and the name of one thing. Out: the number with the name in the singular or in the plural.

use std::fmt::Display;

/// Returns a number with the name of what it counts: `1 node`, `2 nodes`, `3 statuses`, `4 primaries`.
pub fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    let vowels = ["ay", "ey", "oy", "uy"];
    match one.strip_suffix('y') {
        _ if count == "1" => format!("{count} {one}"),
        Some(stem) if !vowels.iter().any(|vowel| one.ends_with(vowel)) => format!("{count} {stem}ies"),
        _ if one.ends_with('s') => format!("{count} {one}es"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_in_the_singular() {
        for (count, one, expected) in [
            (0, "node", "0 nodes"),
            (1, "node", "1 node"),
            (11, "node", "11 nodes"),
            (1, "status", "1 status"),
            (2, "status", "2 statuses"),
            (1, "primary", "1 primary"),
            (2, "primary", "2 primaries"),
            (2, "key", "2 keys"),
        ] {
            assert_eq!(counted(count, one), expected);
        }
    }
}
