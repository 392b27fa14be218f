//! The lease on the served file.

use std::os::unix::fs::symlink;

use super::requirements::leases;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::{Scene, is_leased};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

pub(crate) fn a_file_that_is_no_longer_served_is_no_longer_leased() -> Result<(), Missing> {
    leases()?;
    let (scene, shape) = (Scene::new(), Shape { rows: 100, len_max_bytes: 50 });
    let baked = |number: u64| scene.path(&format!("{number}.db"));
    (1..4).for_each(|number| shape.bake(number, &baked(number)));
    let switch = |number: u64| {
        symlink(baked(number), scene.path("link.new")).unwrap();
        std::fs::rename(scene.path("link.new"), scene.db()).unwrap();
    };
    switch(1);
    let served = scene.serve(&["--memory", "map"]);
    assert!(is_leased(&baked(1)));
    for number in [2, 3] {
        switch(number);
        served.wait_for("generation", number);
        eventually("the lease is released", || !is_leased(&baked(number - 1)));
        assert!(is_leased(&baked(number)));
    }
    let attempt = served.client().rollback().unwrap();
    assert!(served.outcome_of(attempt).starts_with("generation 4 is served"));
    eventually("the lease is released", || !is_leased(&baked(3)));
    assert!(is_leased(&baked(2)));
    // A process that writes to the served file does not wait for long, and the server detects it.
    std::fs::write(baked(2), "nothing").unwrap();
    assert!(!is_leased(&baked(2)));
    eventually("the change is detected", || served.logged("was changed in place") == 1);
    Ok(())
}
