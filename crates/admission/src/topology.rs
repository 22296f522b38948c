//! The rules for topologies: whoever names a level must mean one.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::Topology;

use crate::review::{Consent, Operation, Refusal, Request, Verdict};

/// Judges a topology.
pub(crate) fn validate(request: &Request) -> Verdict {
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(Consent::default());
    }
    let topology: Topology = request.object()?;
    let levels = &topology.spec.levels;
    let labels: BTreeSet<&str> = levels.iter().map(|level| level.node_label.as_str()).collect();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for alias in levels.iter().filter_map(|level| level.alias.as_deref()) {
        *uses.entry(alias).or_default() += 1;
    }
    let list = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let duplicates: Vec<&str> = uses.iter().filter(|(_, count)| **count > 1).map(|(alias, _)| *alias).collect();
    let collisions: Vec<&str> = uses.keys().filter(|alias| labels.contains(*alias)).copied().collect();
    let mut wrong = Vec::new();
    if !duplicates.is_empty() {
        wrong.push(format!("duplicates {}", list(duplicates)));
    }
    if !collisions.is_empty() {
        wrong.push(format!("collisions with node labels {}", list(collisions)));
    }
    if wrong.is_empty() {
        return Ok(Consent::default());
    }
    let name = topology.metadata.name.unwrap_or_default();
    Err(Refusal::new(format!(
        "topology `{name}`: field `spec.levels[].alias`: invalid topology aliases: {}; hint: give each level an alias \
         that no other level has as alias or node label",
        wrong.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judge(levels: Value) -> Result<(), String> {
        let topology = json!({"metadata": {"name": "t"}, "spec": {"levels": levels}});
        let request = json!({"uid": "u", "operation": "CREATE", "object": topology});
        let request: Request = serde_json::from_value(request).unwrap();
        validate(&request).map(|_| ()).map_err(|refusal| refusal.message)
    }

    #[test]
    fn aliases_are_unique_and_no_labels() {
        assert_eq!(judge(json!([{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack"}])), Ok(()));
        let error = judge(json!([
            {"nodeLabel": "zone", "alias": "x"}, {"nodeLabel": "rack", "alias": "x"},
            {"nodeLabel": "host", "alias": "rack"}
        ]));
        let error = error.unwrap_err();
        assert!(
            error.contains("invalid topology aliases: duplicates `x`; collisions with node labels `rack`; hint"),
            "{error}"
        );
    }
}
