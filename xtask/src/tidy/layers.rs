//! Who may know whom: the table of the crates' layers, checked against what cargo says.
//!
//! Arrows point only to crates further up. A crate that is not in the table fails the test: its place is a decision.

use serde_json::Value;

use crate::{invocation::Invocation, tidy::expect_none};

/// What a component may use: never another component.
const COMPONENT: &[&str] = &["kai-quantity", "kai-clock", "kai-api", "kai-convert", "kai-kit"];
/// The only component that decides.
const SCHEDULER: &[&str] = &["kai-quantity", "kai-clock", "kai-core", "kai-trace", "kai-api", "kai-convert", "kai-kit"];

/// Each crate with the crates of the workspace that it may use, from the purest to the programs.
const LAYERS: &[(&str, &str, &[&str])] = &[
    ("pure", "kai-quantity", &[]),
    ("pure", "kai-clock", &[]),
    ("pure", "kai-heap", &[]),
    ("pure", "kai-core", &[]),
    ("pure", "kai-trace", &["kai-core"]),
    ("pure", "kai-invariants", &["kai-core"]),
    ("wire", "kai-api", &["kai-quantity"]),
    ("adapters", "kai-convert", &["kai-quantity", "kai-core", "kai-api"]),
    ("adapters", "kai-kit", &["kai-clock"]),
    ("adapters", "kai-gpu", &[]),
    ("adapters", "kai-fake-nvml", &[]),
    ("components", "kai-reservation", &["kai-api", "kai-kit", "kai-gpu"]),
    ("components", "kai-podgrouper", COMPONENT),
    ("components", "kai-scheduler", SCHEDULER),
    ("components", "kai-binder", COMPONENT),
    ("components", "kai-controllers", COMPONENT),
    ("components", "kai-admission", COMPONENT),
    ("lab", "kai-apiserver", &["kai-quantity", "kai-clock"]),
    ("lab", "kai-lab", &["kai-quantity", "kai-clock", "kai-apiserver"]),
    (
        "programs",
        "kai-cli",
        &[
            "kai-quantity",
            "kai-clock",
            "kai-heap",
            "kai-core",
            "kai-trace",
            "kai-invariants",
            "kai-api",
            "kai-convert",
            "kai-kit",
            "kai-gpu",
            "kai-fake-nvml",
            "kai-reservation",
            "kai-podgrouper",
            "kai-scheduler",
            "kai-binder",
            "kai-controllers",
            "kai-admission",
            "kai-apiserver",
            "kai-lab",
        ],
    ),
    ("programs", "kai", &["kai-heap", "kai-cli"]),
    (
        "beside",
        "kai-tests",
        &[
            "kai-quantity",
            "kai-clock",
            "kai-api",
            "kai-convert",
            "kai-kit",
            "kai-podgrouper",
            "kai-scheduler",
            "kai-binder",
            "kai-controllers",
            "kai-admission",
            "kai-reservation",
            "kai-apiserver",
            "kai-lab",
            "kai-cli",
        ],
    ),
    // The door must open even when the house is being rebuilt: it knows nothing of the rest.
    ("beside", "xtask", &[]),
];

/// What crates of the pure layer may use of others' crates. Tests of theirs may use more.
const PURE: &[(&str, &[&str])] = &[
    ("kai-quantity", &["thiserror"]),
    ("kai-clock", &["jiff", "tokio"]),
    ("kai-heap", &[]),
    ("kai-core", &["fixedbitset", "rustc-hash", "serde", "smallvec"]),
];

#[test]
fn crates_know_only_the_layers_above_them() {
    let mut complaints = Vec::new();
    for (name, dependencies) in packages() {
        let Some((_, _, allowed)) = LAYERS.iter().find(|(_, listed, _)| *listed == name) else {
            complaints.push(format!("`{name}` has no place in the table of layers"));
            continue;
        };
        let ours = dependencies.iter().filter(|dependency| LAYERS.iter().any(|(_, listed, _)| listed == dependency));
        let forbidden = ours.filter(|dependency| !allowed.contains(&dependency.as_str()));
        complaints.extend(forbidden.map(|dependency| format!("`{name}` must not know `{dependency}`")));
    }
    expect_none("crates know only the layers above them", &complaints);
}

#[test]
fn pure_crates_stay_pure() {
    let mut complaints = Vec::new();
    for (name, dependencies) in packages() {
        if let Some((_, allowed)) = PURE.iter().find(|(pure, _)| *pure == name) {
            let forbidden = dependencies.iter().filter(|dependency| !allowed.contains(&dependency.as_str()));
            complaints.extend(forbidden.map(|dependency| format!("`{name}` must not use `{dependency}`")));
        }
    }
    expect_none("pure crates use next to nothing", &complaints);
}

#[test]
fn the_table_lists_only_crates_above() {
    for (index, (_, name, allowed)) in LAYERS.iter().enumerate() {
        let above: Vec<&str> = LAYERS.iter().take(index).map(|(_, name, _)| *name).collect();
        assert!(allowed.iter().all(|dependency| above.contains(dependency)), "`{name}` points down");
    }
}

/// The workspace's packages with the names of what they need outside of their tests.
fn packages() -> Vec<(String, Vec<String>)> {
    let text = Invocation::cargo(["metadata", "--format-version=1", "--no-deps"]).output().unwrap();
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let dependencies = package["dependencies"].as_array().unwrap();
        let used = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
        let names = used.map(|dependency| dependency["name"].as_str().unwrap().to_string()).collect();
        (package["name"].as_str().unwrap().to_string(), names)
    });
    packages.collect()
}
