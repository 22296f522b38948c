//! `kai crds`: the definitions of our resources, ready for `kubectl apply -f -`.

use crate::output;

/// Prints them.
pub fn run() -> anyhow::Result<()> {
    Ok(output::print(&kai_api::crds_yaml())?)
}
