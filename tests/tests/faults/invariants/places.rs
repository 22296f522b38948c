//! Every pod runs, has ended, or waits unbound. In between is nothing that lasts, but on nodes that do not answer.

use super::facts::{Facts, State};

pub fn check(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    for pod in &facts.pods {
        let node = pod.node.as_ref().and_then(|node| facts.nodes.get(node));
        let answers = node.is_some_and(|node| node.ready);
        if pod.state == State::Starts && answers {
            broken
                .push(format!("pod {} is bound to node {:?} and does not run: {:?}", pod.name, pod.node, pod.waiting));
        }
        if let Some(why) = pod.refusals.get("PodScheduled").filter(|_| pod.holds()) {
            broken.push(format!("pod {} is on node {:?} and says that it waits: {why}", pod.name, pod.node));
        }
        if pod.holds() && node.is_none() {
            broken.push(format!("pod {} is on node {:?}, which is no more", pod.name, pod.node));
        }
        if pod.deleting && (pod.node.is_none() || answers) {
            broken.push(format!("pod {} is being deleted and stays", pod.name));
        }
        if pod.state != State::Ends {
            match &pod.group {
                None => broken.push(format!("pod {} has no group", pod.name)),
                Some(group) if !facts.groups.contains_key(group) => {
                    broken.push(format!("pod {} is of group {group}, which is no more", pod.name));
                }
                Some(_) => {}
            }
        }
    }
    broken
}
