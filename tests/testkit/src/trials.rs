//! Tests that need a program or a right that the machine may lack.
//!
//! Such a test is reported as ignored, with the reason. The built-in harness cannot decide that at run time, so these
//! test binaries use libtest-mimic.

use std::process::{Command, Stdio};

use libtest_mimic::{Completion, Trial};

/// The environment variable with names of programs and rights, separated by commas. If one of them is missing, the
/// tests that need it fail instead of being ignored.
const REQUIRE: &str = "ZERO_KV_REQUIRE";

/// The reason why a test is ignored.
#[derive(Clone, Debug)]
pub struct Missing(String);

/// Returns the reason why a test is ignored.
///
/// Panics if the environment requires what is missing, so that the test fails instead.
pub fn missing(what: &str, reason: &str) -> Missing {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = required.split(',').any(|required| required == what);
    assert!(!is_required, "{reason}, and {REQUIRE}={required} requires {what}");
    Missing(reason.to_owned())
}

/// Checks that a program is installed. `version` is the option that prints its version.
pub fn require(program: &str, version: &str) -> Result<(), Missing> {
    let ran = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match ran.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(missing(program, &format!("{program} is not installed"))),
    }
}

/// The result of a test function.
pub trait Outcome {
    fn completion(self) -> Completion;
}

impl Outcome for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

impl Outcome for Result<(), Missing> {
    fn completion(self) -> Completion {
        match self {
            Ok(()) => Completion::Completed,
            Err(Missing(reason)) => Completion::ignored_with(reason),
        }
    }
}

/// Makes a test of a function.
pub fn trial<O: Outcome>(name: impl Into<String>, test: impl FnOnce() -> O + Send + 'static) -> Trial {
    Trial::ignorable_test(name, || Ok(test().completion()))
}

/// Lists test functions as a vector of trials, each named after its module and function.
#[macro_export]
macro_rules! trials {
    ($($module:ident::$test:ident),* $(,)?) => {
        vec![$($crate::trials::trial(concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}
pub use crate::trials;
