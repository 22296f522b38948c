//! Of a group that must start together, at least as many pods as it needs hold their places, or none.

use super::facts::Facts;

pub fn check(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, group) in &facts.groups {
        let needed = usize::try_from(group.spec.min_member.unwrap_or(1)).unwrap_or(0);
        let members = || facts.pods.iter().filter(|pod| pod.group.as_ref() == Some(name));
        let holding = members().filter(|pod| pod.holds()).count();
        let done = members().filter(|pod| pod.phase == "Succeeded").count();
        if holding > 0 && holding + done < needed {
            broken.push(format!("group {name} needs {needed} pods at once, {holding} hold places"));
        }
    }
    broken
}
