//! The Java programs of the cookbook compile and print what the page shows.

use std::fs;
use std::process::Command;

use crate::helpers::client_programs::java_source;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::Missing;
use zero_kv::bake::Keys;

const PAGE: &str = include_str!("../../docs/cookbook/java.md");

/// Returns the blocks of code of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("\n```{language}\n");
    PAGE.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

pub(crate) fn the_programs_of_the_page_print_what_it_shows() -> Result<(), Missing> {
    let rows = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/datasets/unicode-names.csv")).unwrap();
    let scene = Scene::baked(Keys::U64, rows);
    let server = scene.serve(&["--tcp", "127.0.0.1:0"]);
    let port = server.tcp().port().to_string();
    let jedis = blocks("text")[0].to_owned() + "\n";
    let lettuce = jedis
        .replace(
            "[LATIN CAPITAL LETTER A, LATIN CAPITAL LETTER B, null]",
            "[KeyValue[65, LATIN CAPITAL LETTER A], KeyValue[66, LATIN CAPITAL LETTER B], KeyValue[1114112].empty]",
        )
        .replace(", true", ", 1");
    let programs = blocks("java");
    assert_eq!(programs.len(), 2);
    for ((class, expected), source) in [("JedisLookup", jedis), ("LettuceLookup", lettuce)].iter().zip(programs) {
        let command = java_source(class, source)?;
        let output = Command::new(&command[0]).args(&command[1..]).arg(&port).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), *expected, "{class}: {errors}");
        assert!(output.status.success(), "{class}: {errors}");
    }
    Ok(())
}
