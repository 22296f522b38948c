//! `cargo xtask generate kubernetes`: what the API server must know about the kinds of Kubernetes itself, from the published sources.
//!
//! Sources are the Go modules of one Kubernetes release: its OpenAPI v3 and discovery documents give schemas and resources, the
//! `generated.proto` files give the binary encoding, and the struct tags of the Go types say which zero values JSON leaves out.
//! The result is one text file, gzipped: a line per fact, `<section> <name> <json>`, sorted, so that the server can index it
//! without parsing and read single definitions on demand (`crates/apiserver/src/builtin/data.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

mod proto;

/// The release all facts are taken from.
pub const KUBERNETES_VERSION: &str = "v1.34.4";
/// The libraries of that release.
const LIBRARY_VERSION: &str = "v0.34.4";
/// Where the result goes, below the root of the workspace.
const TARGET: &str = "crates/apiserver/data/kubernetes.txt.gz";

/// A served group version and where its Go types are.
struct GroupVersion {
    group: &'static str,
    version: &'static str,
    module: &'static str,
    folder: &'static str,
}

const fn api(group: &'static str, version: &'static str, folder: &'static str) -> GroupVersion {
    GroupVersion { group, version, module: "k8s.io/api", folder }
}

/// The group versions the embedded server has.
const GROUP_VERSIONS: [GroupVersion; 20] = [
    api("", "v1", "core/v1"),
    api("admissionregistration.k8s.io", "v1", "admissionregistration/v1"),
    GroupVersion {
        group: "apiextensions.k8s.io",
        version: "v1",
        module: "k8s.io/apiextensions-apiserver",
        folder: "pkg/apis/apiextensions/v1",
    },
    GroupVersion {
        group: "apiregistration.k8s.io",
        version: "v1",
        module: "k8s.io/kube-aggregator",
        folder: "pkg/apis/apiregistration/v1",
    },
    api("apps", "v1", "apps/v1"),
    api("authentication.k8s.io", "v1", "authentication/v1"),
    api("authorization.k8s.io", "v1", "authorization/v1"),
    api("autoscaling", "v1", "autoscaling/v1"),
    api("autoscaling", "v2", "autoscaling/v2"),
    api("batch", "v1", "batch/v1"),
    api("coordination.k8s.io", "v1", "coordination/v1"),
    api("discovery.k8s.io", "v1", "discovery/v1"),
    api("events.k8s.io", "v1", "events/v1"),
    api("networking.k8s.io", "v1", "networking/v1"),
    api("node.k8s.io", "v1", "node/v1"),
    api("policy", "v1", "policy/v1"),
    api("rbac.authorization.k8s.io", "v1", "rbac/v1"),
    api("resource.k8s.io", "v1", "resource/v1"),
    api("scheduling.k8s.io", "v1", "scheduling/v1"),
    api("storage.k8s.io", "v1", "storage/v1"),
];

/// Packages of apimachinery whose messages the API types use.
const MACHINERY: [&str; 4] = ["pkg/apis/meta/v1", "pkg/runtime", "pkg/util/intstr", "pkg/api/resource"];

/// Resources of these groups that are deprecated and report on other processes (etcd, scheduler) that are not there.
const LEFT_OUT: [&str; 1] = ["componentstatuses"];

/// Writes the data file below `root`, the root of the workspace; needs the Go tool for finding the modules.
pub fn generate_kubernetes_data(root: &Path) -> Result<PathBuf> {
    let mut modules = BTreeMap::from([("k8s.io/kubernetes", module_folder("k8s.io/kubernetes", KUBERNETES_VERSION)?)]);
    for name in ["k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"] {
        modules.insert(name, module_folder(name, LIBRARY_VERSION)?);
    }
    let kubernetes = &modules["k8s.io/kubernetes"];

    let schemas = read_schemas(&kubernetes.join("api/openapi-spec/v3"))?;
    let kinds = kinds_of(&schemas);
    let resources = read_resources(&kubernetes.join("api/discovery"))?;
    let mut messages = BTreeMap::new();
    for folder in MACHINERY {
        proto::read_package(&modules["k8s.io/apimachinery"].join(folder), &schemas, &mut messages)?;
    }
    for each in &GROUP_VERSIONS {
        proto::read_package(&modules[each.module].join(each.folder), &schemas, &mut messages)?;
    }

    let mut text = format!("kubernetes {KUBERNETES_VERSION} {{}}\n");
    for (section, facts) in [("kind", kinds), ("message", messages), ("resource", resources), ("schema", schemas)] {
        for (name, fact) in facts {
            ensure!(!name.contains([' ', '\n']), "`{name}` cannot be the name of a line");
            writeln!(text, "{section} {name} {fact}")?;
        }
    }
    let target = root.join(TARGET);
    fs::create_dir_all(target.parent().context("the target is in a folder")?)?;
    let mut encoder = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes())?;
    fs::write(&target, encoder.finish()?).with_context(|| format!("write {}", target.display()))?;
    Ok(target)
}

fn module_folder(module: &str, version: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .current_dir(std::env::temp_dir())
        .output()
        .context("run `go mod download`")?;
    let answer: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("download Go module {module}"))?;
    match answer["Dir"].as_str() {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => bail!("download Go module {module}@{version}: {}", answer["Error"]),
    }
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

/// All component schemas of the served group versions, by OpenAPI name.
fn read_schemas(folder: &Path) -> Result<BTreeMap<String, Value>> {
    let mut schemas = BTreeMap::new();
    for GroupVersion { group, version, .. } in &GROUP_VERSIONS {
        let file = if group.is_empty() {
            format!("api__{version}_openapi.json")
        } else {
            format!("apis__{group}__{version}_openapi.json")
        };
        let document = read_json(&folder.join(file))?;
        let components = document["components"]["schemas"].as_object().context("components.schemas is an object")?;
        for (name, schema) in components {
            let known = schemas.insert(name.clone(), schema.clone());
            ensure!(known.is_none_or(|k| k == *schema), "two documents disagree about `{name}`");
        }
    }
    Ok(schemas)
}

/// `group/version/kind` to the OpenAPI name, for the served group versions.
fn kinds_of(schemas: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let served: BTreeSet<_> = GROUP_VERSIONS.iter().map(|g| (g.group, g.version)).collect();
    let mut kinds = BTreeMap::new();
    for (name, schema) in schemas {
        for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let word = |key: &str| gvk[key].as_str().unwrap_or_default();
            if served.contains(&(word("group"), word("version"))) {
                kinds.insert(format!("{}/{}/{}", word("group"), word("version"), word("kind")), json!(name));
            }
        }
    }
    kinds
}

/// `group/version/plural` to names, scope, verbs and subresources.
fn read_resources(folder: &Path) -> Result<BTreeMap<String, Value>> {
    let mut resources = BTreeMap::new();
    for GroupVersion { group, version, .. } in &GROUP_VERSIONS {
        let file =
            if group.is_empty() { format!("api__{version}.json") } else { format!("apis__{group}__{version}.json") };
        let document = read_json(&folder.join(file))?;
        let entries = document["resources"].as_array().context("resources is a list")?;
        let word = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        for entry in entries.iter().filter(|e| !word(e, "name").contains('/')) {
            let plural = word(entry, "name");
            if LEFT_OUT.contains(&plural.as_str()) {
                continue;
            }
            let subresources: Vec<Value> = entries
                .iter()
                .filter_map(|e| Some((e, word(e, "name").strip_prefix(&format!("{plural}/"))?.to_owned())))
                .map(|(e, name)| {
                    let own = word(e, "version").is_empty();
                    let (g, v) = if own {
                        ((*group).to_owned(), (*version).to_owned())
                    } else {
                        (word(e, "group"), word(e, "version"))
                    };
                    json!({"name": name, "group": g, "version": v, "kind": e["kind"], "verbs": e["verbs"]})
                })
                .collect();
            let mut fact = Map::new();
            for key in ["kind", "namespaced", "shortNames", "categories", "verbs"] {
                if !entry[key].is_null() {
                    fact.insert(key.to_owned(), entry[key].clone());
                }
            }
            fact.insert("singular".to_owned(), entry["singularName"].clone());
            fact.insert("subresources".to_owned(), Value::Array(subresources));
            resources.insert(format!("{group}/{version}/{plural}"), Value::Object(fact));
        }
    }
    Ok(resources)
}
