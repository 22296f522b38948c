//! `deploy/crds` is what the types say. `UPDATE=1 cargo test -p kai-api --test generated` writes it anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).map(Iterator::flatten).into_iter().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, std::fs::read_to_string(entry.path()).ok()?)))
        .collect()
}

#[test]
fn committed_crds_are_current() {
    if std::env::var_os("UPDATE").is_some() {
        kai_api::write_crds(&committed()).expect("deploy/crds can be written");
    }
    let fresh = tempfile::tempdir().expect("a temporary folder");
    let written = kai_api::write_crds(fresh.path()).expect("a temporary folder can be written");
    assert_eq!(written.len(), 6);
    let (committed, fresh) = (files(&committed()), files(fresh.path()));
    assert_eq!(committed.keys().collect::<Vec<_>>(), fresh.keys().collect::<Vec<_>>(), "run with UPDATE=1");
    for (name, text) in fresh {
        // Not assert_eq: the files are too long to print.
        assert!(committed.get(&name) == Some(&text), "deploy/crds/{name} is out of date; run with UPDATE=1");
    }
}

#[test]
fn the_stream_holds_the_same_crds() {
    let stream: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(&kai_api::crds_yaml()).expect("the stream is YAML");
    let crds: Vec<_> = kai_api::crds().iter().map(|crd| serde_json::to_value(crd).expect("a CRD is JSON")).collect();
    assert_eq!(stream, crds);
}
