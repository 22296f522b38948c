//! The CRDs, as Kubernetes takes them and as KAI publishes them.
//!
//! What the derive makes of a type is changed in the same ways for all kinds: `nullable` goes (KAI's fields may be left out but
//! not be null), defaults go (KAI has none in its schemas), quantities get the pattern that Go's schema tools give them, free-form
//! objects keep their fields, and an object without `spec` gets an empty one instead of being refused.

mod schema;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology};

/// First line of every written file.
const HEADER: &str = "# Generated from crates/api by `UPDATE=1 cargo test -p kai-api --test generated`; do not edit.\n";

/// All CRDs, always in this order: what schedules first, then what sets it up.
pub fn crds() -> Vec<CustomResourceDefinition> {
    // Deriving the schema of the Config takes half a second in a debug build; tests ask often.
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        let mut crds = vec![
            Queue::crd(),
            PodGroup::crd(),
            BindRequest::crd(),
            Topology::crd(),
            SchedulingShard::crd(),
            Config::crd(),
        ];
        crds.iter_mut().for_each(schema::publish);
        crds
    });
    CRDS.clone()
}

/// All CRDs as one YAML stream, which `kubectl apply -f -` takes.
pub fn crds_yaml() -> String {
    let mut stream = String::new();
    for crd in crds() {
        let _ = write!(stream, "---\n{}", yaml(&crd));
    }
    stream
}

/// A file of a CRD could not be written.
#[derive(Debug, thiserror::Error)]
#[error("write CRD to {}", path.display())]
pub struct WriteCrdsError {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// Writes one file per kind (`<group>_<plural>.yaml`) and returns their paths.
pub fn write_crds(directory: &Path) -> Result<Vec<PathBuf>, WriteCrdsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteCrdsError { path, source }
    };
    std::fs::create_dir_all(directory).map_err(failed(directory))?;
    let mut written = Vec::new();
    for crd in crds() {
        let path = directory.join(format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural));
        std::fs::write(&path, format!("{HEADER}---\n{}", yaml(&crd))).map_err(failed(&path))?;
        written.push(path);
    }
    Ok(written)
}

fn yaml(crd: &CustomResourceDefinition) -> String {
    // Through a JSON value, whose maps are sorted: neither step can fail for a CRD, which is plain data with string keys.
    let value = serde_json::to_value(crd).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_default()
}
