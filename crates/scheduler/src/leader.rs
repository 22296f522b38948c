//! Who writes: the replica that holds the lease. The others keep watching, so that they can take over at once.

use kai_kit::{Process, lease};
use tokio::sync::watch;

/// Follows the election until the process ends: `leading` says whether this replica writes.
pub(crate) async fn follow(process: Process, name: String, leading: watch::Sender<bool>) {
    while !process.cancel.is_cancelled() {
        let end = lease::lead(&process, &name, lease::Times::default(), |lost| {
            let leading = leading.clone();
            async move {
                leading.send_replace(true);
                lost.cancelled().await;
                leading.send_replace(false);
            }
        })
        .await;
        leading.send_replace(false);
        if end == lease::End::Lost {
            tracing::warn!(lease = name, "another replica may write now");
        }
    }
}
