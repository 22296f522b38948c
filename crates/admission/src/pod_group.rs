//! The rules for groups: subgroups form trees, and who needs how many is said once.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::{PodGroup, SubGroup};

use crate::review::{Consent, Operation, Refusal, Request, Verdict};

/// Judges a group. What a group already was is not judged again, so that its annotations stay changeable.
pub(crate) fn validate(request: &Request) -> Verdict {
    let update = match request.operation {
        Operation::Create => false,
        Operation::Update => true,
        Operation::Delete | Operation::Connect => return Ok(Consent::default()),
    };
    let group: PodGroup = request.object()?;
    if update && request.old_object::<PodGroup>().is_ok_and(|old| old.spec == group.spec) {
        return Ok(Consent::default());
    }
    let judge = Judge { place: place(request, &group), subgroups: &group.spec.sub_groups };
    if group.spec.min_member.is_some() && group.spec.min_sub_group.is_some() {
        return Err(judge.both("spec"));
    }
    judge.structure()?;
    let mut warnings = judge.minima(update)?;
    let top = group.spec.sub_groups.iter().filter(|subgroup| parent(subgroup).is_none()).count();
    warnings.extend(judge.too_many("spec", group.spec.min_sub_group, top));
    Ok(Consent::with(warnings))
}

fn place(request: &Request, group: &PodGroup) -> String {
    let namespace = request.namespace.clone().or_else(|| group.metadata.namespace.clone()).unwrap_or_default();
    let name = group.metadata.name.clone().or_else(|| group.metadata.generate_name.clone()).unwrap_or_default();
    format!("{namespace}/{name}")
}

fn parent(subgroup: &SubGroup) -> Option<&str> {
    subgroup.parent.as_deref().filter(|parent| !parent.is_empty())
}

struct Judge<'a> {
    place: String,
    subgroups: &'a [SubGroup],
}

impl Judge<'_> {
    fn refuse(&self, field: &str, what: impl std::fmt::Display, remedy: &str) -> Refusal {
        Refusal::new(format!("podgroup `{}`: field `{field}`: {what}; hint: {remedy}", self.place))
    }

    fn both(&self, field: &str) -> Refusal {
        let what = "minMember and minSubGroup are mutually exclusive";
        self.refuse(field, what, "use `minMember` where pods are counted and `minSubGroup` where subgroups are")
    }

    fn structure(&self) -> Result<(), Refusal> {
        let mut names: BTreeMap<&str, &SubGroup> = BTreeMap::new();
        for subgroup in self.subgroups {
            let name = subgroup.name.as_str();
            if names.insert(name, subgroup).is_some() {
                let what = format_args!("duplicate subgroup name `{name}`");
                return Err(self.refuse("spec.subGroups", what, "give each subgroup a name of its own"));
            }
            if subgroup.min_member.is_some() && subgroup.min_sub_group.is_some() {
                return Err(self.both(&format!("spec.subGroups[{name}]")));
            }
        }
        for subgroup in self.subgroups {
            let name = &subgroup.name;
            if let Some(above) = parent(subgroup).filter(|above| !names.contains_key(above)) {
                let what = format_args!("parent `{above}` of `{name}` not found");
                return Err(self.refuse("spec.subGroups", what, "name a subgroup of this group"));
            }
        }
        // Each subgroup is walked up once: what is known to reach the top needs no second walk.
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for subgroup in self.subgroups {
            let mut path: Vec<&str> = Vec::new();
            let mut on_path: BTreeSet<&str> = BTreeSet::new();
            let mut here = Some(subgroup);
            while let Some(current) = here.filter(|current| !done.contains(current.name.as_str())) {
                path.push(&current.name);
                if !on_path.insert(&current.name) {
                    let path: Vec<String> = path.iter().take(10).map(|name| format!("`{name}`")).collect();
                    let what = format_args!("cycle detected: {}", path.join(" -> "));
                    return Err(self.refuse("spec.subGroups", what, "let one of them have no parent"));
                }
                here = parent(current).and_then(|above| names.get(above)).copied();
            }
            done.extend(path);
        }
        Ok(())
    }

    fn minima(&self, update: bool) -> Result<Vec<String>, Refusal> {
        let mut children: BTreeMap<&str, usize> = BTreeMap::new();
        for above in self.subgroups.iter().filter_map(parent) {
            *children.entry(above).or_default() += 1;
        }
        let mut warnings = Vec::new();
        for subgroup in self.subgroups {
            let name = &subgroup.name;
            let field = format!("spec.subGroups[{name}]");
            match children.get(name.as_str()) {
                None if subgroup.min_sub_group.is_some() => {
                    let what = "minSubGroup is not allowed on a leaf subgroup";
                    return Err(self.refuse(&field, what, "use `minMember`"));
                }
                None if subgroup.min_member.is_none() => {
                    let what = "minMember is required on a leaf subgroup";
                    return Err(self.refuse(&field, what, "say how many of its pods must start together"));
                }
                Some(_) if subgroup.min_member.is_some() => {
                    let what = "minMember is not allowed on a mid-level subgroup";
                    let refusal = self.refuse(&field, what, "use `minSubGroup`");
                    if !update {
                        return Err(refusal);
                    }
                    warnings.push(refusal.message);
                }
                Some(count) => warnings.extend(self.too_many(&field, subgroup.min_sub_group, *count)),
                None => {}
            }
        }
        Ok(warnings)
    }

    fn too_many(&self, field: &str, wanted: Option<i32>, children: usize) -> Option<String> {
        let wanted = wanted.filter(|wanted| usize::try_from(*wanted).is_ok_and(|wanted| wanted > children))?;
        let place = &self.place;
        Some(format!(
            "podgroup `{place}`: field `{field}`: minSubGroup {wanted} exceeds the number of direct children, \
             {children}: it cannot start"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judge(operation: &str, spec: Value) -> Result<Vec<String>, String> {
        let group = |spec: Value| {
            let version = "scheduling.run.ai/v2alpha2";
            json!({"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec})
        };
        let (new, old) = (group(spec), group(json!({})));
        let request = json!({"uid": "u", "namespace": "team", "operation": operation, "object": new, "oldObject": old});
        let request: Request = serde_json::from_value(request).unwrap();
        validate(&request).map(|consent| consent.warnings).map_err(|refusal| refusal.message)
    }

    #[test]
    fn each_mistake_is_named() {
        for (spec, expected) in [
            (json!({"minMember": 1, "minSubGroup": 1}), "mutually exclusive"),
            (json!({"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]}), "mutually exclusive"),
            (
                json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]}),
                "duplicate subgroup name `a`",
            ),
            (json!({"subGroups": [{"name": "a", "minMember": 1, "parent": "b"}]}), "parent `b` of `a` not found"),
            (
                json!({"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]}),
                "cycle detected: `a` -> `b` -> `a`",
            ),
            (json!({"subGroups": [{"name": "a", "minSubGroup": 1}]}), "minSubGroup is not allowed on a leaf"),
            (json!({"subGroups": [{"name": "a"}]}), "minMember is required"),
            (
                json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1, "parent": "a"}]}),
                "minMember is not allowed on a mid-level",
            ),
        ] {
            let error = judge("CREATE", spec.clone()).expect_err(&spec.to_string());
            assert!(
                error.contains("podgroup `team/g`") && error.contains(expected) && error.contains("hint"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_older_groups_have_is_only_warned_about() {
        let mid = json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1, "parent": "a"}]});
        assert_eq!(judge("UPDATE", mid).unwrap().len(), 1);
        let many = json!({"minSubGroup": 3, "subGroups": [{"name": "a", "minMember": 1}]});
        assert!(judge("CREATE", many).unwrap()[0].contains("minSubGroup 3 exceeds the number of direct children, 1"));
        assert_eq!(judge("CREATE", json!({"minMember": 4, "queue": "q"})), Ok(Vec::new()));
    }
}
