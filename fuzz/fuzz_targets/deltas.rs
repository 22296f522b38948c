//! Deltas of any content in any order: the core takes them and plans.

#![no_main]

use kai_core::{Cluster, delta::Delta};
use kai_invariants::sample::{NOW, policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(deltas) = postcard::from_bytes::<Vec<Delta>>(bytes) else { return };
    let mut cluster = Cluster::new();
    for (place, delta) in deltas.into_iter().enumerate() {
        cluster.apply(delta);
        if place % 16 == 15 {
            kai_core::plan(&mut cluster, NOW, &policy());
        }
    }
    let once = kai_core::plan(&mut cluster, NOW, &policy());
    let twice = kai_core::plan(&mut cluster, NOW, &policy());
    assert_eq!(once.decisions, twice.decisions);
});
