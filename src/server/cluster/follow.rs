//! Reads the topology file again when it changes, and on request, and releases the slots of other nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

use super::ClusterNode;

/// The time between two checks of the file.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Follows the topology file of a node, if it has one, until the runtime ends. Reads the file when `reloads` announces a
/// request, and once per second. A topology that is rejected is logged once, and the one in effect stays.
pub(in crate::server) async fn follow(node: Arc<ClusterNode>, mut reloads: watch::Receiver<()>) {
    let mut last_problem = String::new();
    loop {
        tokio::select! {
            request = reloads.changed() => match request {
                Ok(()) => {
                    last_problem.clear();
                    node.forget_file();
                }
                Err(_) => return,
            },
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        node.release_retained();
        let reading = Arc::clone(&node);
        // A slow file system must not delay new connections.
        match tokio::task::spawn_blocking(move || reading.read_file()).await {
            // A rejected document that has not changed is not logged again.
            Ok(Ok(_)) if node.refused().is_empty() => last_problem.clear(),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let problem = error.to_string();
                if problem != last_problem {
                    warn!("{problem}: topology {} stays in effect", node.topology_number());
                }
                last_problem = problem;
            }
            Err(_) => return,
        }
    }
}
