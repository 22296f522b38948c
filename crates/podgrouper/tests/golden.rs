//! Groups of workloads, case by case: `golden/<case>.yaml` has a pod and its owners from the nearest up,
//! `golden/<case>.group.yaml` what comes of them. `UPDATE=1` writes the latter anew.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kai_podgrouper::{Owner, Reference, TypeDefaults, Workload, kinds, rules::Rules};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    pod: Pod,
    #[serde(default)]
    owners: Vec<Value>,
    #[serde(default)]
    classes: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    /// The key `types` of the ConfigMap with defaults.
    #[serde(default)]
    types: Option<String>,
}

#[test]
fn every_case_gives_its_group() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var_os("UPDATE").is_some();
    let mut cases = 0;
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".yaml").filter(|name| !name.contains('.')) else { continue };
        let result = result(&fs::read_to_string(&file).unwrap());
        let text = serde_saphyr::to_string(&result).unwrap();
        let expected = folder.join(format!("{name}.group.yaml"));
        if update {
            fs::write(&expected, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&expected).unwrap_or_default(), "{name}");
        cases += 1;
    }
    assert!(cases >= 12, "{cases}");
}

fn result(text: &str) -> Value {
    let case: Case = serde_saphyr::from_str(text).unwrap();
    let mut owners: Vec<Arc<Owner>> = case.owners.iter().map(|object| Arc::new(owner(object))).collect();
    if owners.is_empty() {
        owners.push(Arc::new(Owner::of_pod(&case.pod)));
    }
    let map = ConfigMap { data: case.types.map(|types| [("types".to_owned(), types)].into()), ..ConfigMap::default() };
    let defaults = if map.data.is_some() { TypeDefaults::read(&map).0 } else { TypeDefaults::default() };
    let known = ["train", "build", "inference"];
    let rules = Rules {
        queue_label: "kai.scheduler/queue",
        node_pool_label: "kai.scheduler/node-pool",
        class_exists: &|class| known.contains(&class) || case.classes.iter().any(|known| known == class),
        group_exists: &|group| case.groups.iter().any(|known| known == group),
        keep_legacy: true,
        defaults: &defaults,
    };
    let top = owners.last().unwrap();
    let kind = kinds::of(&top.reference);
    let mut objects = BTreeMap::new();
    loop {
        let workload = Workload { pod: &case.pod, owners: &owners, top, objects: &objects };
        if let Some(reference) = kind.needs(&workload) {
            let found = case.owners.iter().find(|object| owner(object).reference == reference);
            objects.insert(reference, found.map(|object| Arc::new(object.clone())));
            continue;
        }
        return match kind.group(&workload, &rules) {
            Ok(wanted) => json!({
                "group": wanted.to_pod_group(rules.queue_label, rules.node_pool_label),
                "subgroup": wanted.pod_sub_group,
                "warnings": wanted.warnings,
            }),
            Err(trouble) => json!({"trouble": trouble.to_string()}),
        };
    }
}

fn owner(object: &Value) -> Owner {
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    let text = |key: &str| object[key].as_str().unwrap().to_owned();
    let name = metadata.name.clone().unwrap();
    Owner::new(Reference { api_version: text("apiVersion"), kind: text("kind"), name }, metadata)
}
