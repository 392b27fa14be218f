//! SIGKILL at any moment.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use zero_kv::Lookup;

use super::*;

const KILLS: usize = 100;
const SEED: u64 = 0x5eed_0911;

/// Starts a bake that prints its stages.
fn bake_with_progress(scene: &Scene) -> Command {
    let mut command = scene.folder.command(&BAKER);
    command.args(["rows.csv", "--temp-dir", "temp"]).args(LEAST_MEMORY);
    command
}

fn printed_stages(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok)
}

/// Returns the stages of a bake and their durations.
fn stages(scene: &Scene) -> Vec<(String, Duration)> {
    let mut child = bake_with_progress(scene).spawn().unwrap();
    let mut began = Instant::now();
    let lap = |line: String| {
        let took = began.elapsed();
        began = Instant::now();
        (line.split_whitespace().next().unwrap().to_owned(), took)
    };
    let stages = printed_stages(&mut child).map(lap).collect();
    assert!(child.wait().unwrap().success());
    stages
}

#[test]
fn a_bake_killed_at_any_moment_leaves_an_intact_table_and_the_next_bake_leaves_nothing_else() {
    let scene = Scene::new();
    let Scene { folder, before } = &scene;
    folder.write("rows.csv", rows_to_spill());
    folder.write("before.csv", "1,from before\n");
    let stages = stages(&scene);
    let new = fs::read(folder.path("storage.db")).unwrap();
    let names = ["before.csv", "rows.csv", "storage.db", "temp"];
    folder.bake(&["-q", "before.csv"]).succeeds();
    scene.assert_untouched();

    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    // The last counter is for bakes that had already ended.
    let mut killed_in = vec![0; stages.len() + 1];
    for kill in 0..KILLS {
        let wanted = kill % stages.len();
        // A random moment of the chosen stage, and sometimes its start.
        let delay = stages[wanted].1.mul_f64(random.below(1000) as f64 / 1000.0) * u32::from(kill % 7 > 0);
        let mut child = bake_with_progress(&scene).spawn().unwrap();
        let mut ended_stages = printed_stages(&mut child);
        let mut ended = ended_stages.by_ref().take(wanted).count();
        std::thread::sleep(delay);
        child.kill().unwrap();
        child.wait().unwrap();
        ended += ended_stages.count();
        killed_in[ended.min(stages.len())] += 1;

        let found = fs::read(folder.path("storage.db")).unwrap();
        let is_new = found == new;
        assert!(is_new || found == *before, "kill {kill}: neither table");
        assert!(is_new || ended < stages.len(), "kill {kill}: reported as in place, and is not");
        assert_eq!(folder.open("storage.db").len(), if is_new { 4200 } else { 1 }, "kill {kill}");
        // For a moment between two system calls, the new file has a hidden name.
        let left = folder.names().into_iter().filter(|name| !names.contains(&&**name));
        let left: Vec<_> = left.collect();
        assert!(left.iter().all(|name| name.starts_with(".baker.")), "kill {kill}: {left:?}");

        folder.bake(&["-q", "before.csv"]).succeeds();
        assert_eq!(folder.names(), names, "kill {kill}");
        scene.assert_untouched();
    }
    let names = stages.iter().map(|(name, _)| &**name).chain(["after the end"]);
    let tally: Vec<_> = names.zip(&killed_in).collect();
    println!("killed in {tally:?}");
    for (stage, count) in tally {
        assert!(*count > 0 || !["read", "write", "index"].contains(&stage), "none was killed in {stage}");
    }
    assert!(folder.run(&mut bake_with_progress(&scene), b"").status.success());
    assert!(fs::read(folder.path("storage.db")).unwrap() == new, "the next bake gives the same file");
}
