//! Reads the users file again when it changes, and on request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tracing::warn;

use super::table::Users;
use crate::server::process::liveness::Thread;
use crate::server::stats::statistics::Statistics;
use crate::server::table::generations::FolderWatch;

/// The time after which the file is checked again if no notification arrives.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Follows the users file until the runtime ends. Reads the file again when `reloads` announces a request and, if
/// `is_watching`, when the file changes. Calls `on_change` each time the users are replaced. Another thread watches the
/// file's folder; `thread` records whether that thread is alive.
pub(in crate::server) async fn watch(
    users: Arc<Users>,
    statistics: Arc<Statistics>,
    mut reloads: watch::Receiver<()>,
    is_watching: bool,
    thread: Arc<Thread>,
    on_change: impl Fn(),
) {
    let Some(path) = users.path() else { return };
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    let _folder_watch = is_watching.then(|| {
        FolderWatch::new(path, &thread, move || notify.notify_one()).inspect_err(|error| {
            let every_s = CHECK_EVERY.as_secs();
            warn!("{}: cannot be watched: {error}: it is checked every {every_s} s instead", path.display());
        })
    });
    let mut wait = CHECK_EVERY;
    loop {
        let is_requested = tokio::select! {
            request = reloads.changed() => match request {
                Ok(()) => true,
                Err(_) => return,
            },
            () = changed.notified() => false,
            () = tokio::time::sleep(wait), if is_watching => false,
        };
        wait = CHECK_EVERY;
        if !is_requested && let Some(unsettled) = users.unsettled() {
            // A process may still be writing to the file.
            wait = unsettled;
            continue;
        }
        let (users, statistics) = (Arc::clone(&users), Arc::clone(&statistics));
        // A slow file system must not delay new connections.
        match tokio::task::spawn_blocking(move || users.reload(is_requested, &statistics.totals)).await {
            Ok(true) => on_change(),
            Ok(false) => {}
            Err(_) => return,
        }
    }
}
