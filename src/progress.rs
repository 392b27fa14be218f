//! Functions that observe long work, such as a bake.
//!
//! In: options, and optionally a function. Out: calls of the function while the work goes on.

use std::fmt;

/// Options of long work, and optionally a function that observes the work.
///
/// A function that takes `impl Into<WithProgress>` accepts a reference to its options, for example
/// `&Options::default()`, or the result of a method `with_progress`, such as
/// [`bake::Options::with_progress`](crate::bake::Options).
pub struct WithProgress<'a, O, E> {
    options: &'a O,
    progress: Option<&'a mut (dyn FnMut(E) + Send)>,
}

impl<'a, O, E> WithProgress<'a, O, E> {
    pub(crate) fn new(options: &'a O, progress: &'a mut (dyn FnMut(E) + Send)) -> Self {
        WithProgress { options, progress: Some(progress) }
    }

    /// Does the work. Passes it the options, and the function that observes it or a function that ignores all events.
    pub(crate) fn run<T>(self, work: impl FnOnce(&'a O, &mut (dyn FnMut(E) + Send)) -> T) -> T {
        match self.progress {
            Some(progress) => work(self.options, progress),
            None => work(self.options, &mut |_| ()),
        }
    }
}

impl<'a, O, E> From<&'a O> for WithProgress<'a, O, E> {
    fn from(options: &'a O) -> Self {
        WithProgress { options, progress: None }
    }
}

impl<O: fmt::Debug, E> fmt::Debug for WithProgress<'_, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithProgress").field("options", &self.options).finish_non_exhaustive()
    }
}
