//! Containers see no GPU that they did not ask for (switched on by `blockNvidiaVisibleDevices`): debug containers
//! included.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use kai_api::names::env::NVIDIA_VISIBLE_DEVICES;
use serde_json::{Value, json};

use super::{
    inject::set_env,
    sharing,
    subject::{Subject, devices},
    target::{self, Target},
};
use crate::review::Refusal;

/// Values that show no GPU.
const NOTHING: [&str; 2] = ["void", "none"];

/// A container of any kind.
struct Seen<'a> {
    list: &'static str,
    index: usize,
    name: &'a str,
    env: Option<&'a Vec<EnvVar>>,
    resources: Option<&'a ResourceRequirements>,
}

impl Seen<'_> {
    fn variables(&self) -> impl Iterator<Item = &EnvVar> {
        self.env.into_iter().flatten().filter(|variable| variable.name == NVIDIA_VISIBLE_DEVICES)
    }
}

/// All containers but the one with the part of a GPU.
fn others<'a>(subject: &Subject<'a>) -> Result<Vec<Seen<'a>>, Refusal> {
    let target = if sharing::asks(subject) { Some(target::find(subject)?) } else { None };
    let is_target =
        |seen: &Seen<'_>| target.is_some_and(|target: Target| target.list() == seen.list && target.index == seen.index);
    let usual = |list| {
        move |(index, container): (usize, &'a k8s_openapi::api::core::v1::Container)| Seen {
            list,
            index,
            name: &container.name,
            env: container.env.as_ref(),
            resources: container.resources.as_ref(),
        }
    };
    let main = subject.containers().enumerate().map(usual("containers"));
    let init = subject.init_containers().enumerate().map(usual("initContainers"));
    let debug = subject.spec().into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten()).enumerate();
    let debug = debug.map(|(index, container)| Seen {
        list: "ephemeralContainers",
        index,
        name: &container.name,
        env: container.env.as_ref(),
        resources: None,
    });
    Ok(main.chain(init).chain(debug).filter(|seen| !is_target(seen)).collect())
}

/// Refuses containers that show themselves GPUs. What the pod already had is not judged again.
pub(super) fn check(subject: &Subject<'_>, old: Option<&Subject<'_>>) -> Result<(), Refusal> {
    let known = old.map(others).transpose()?.unwrap_or_default();
    for container in others(subject)? {
        if known.iter().any(|known| known.name == container.name && known.env == container.env) {
            continue;
        }
        let (name, list) = (container.name, container.list);
        let field = format!("container `{name}` in `spec.{list}`");
        for variable in container.variables() {
            if variable.value_from.is_some() {
                let what = format_args!("variable `{NVIDIA_VISIBLE_DEVICES}` must not use valueFrom");
                return Err(subject.refuse(&field, what, "remove the variable"));
            }
            let value = variable.value.as_deref().unwrap_or_default();
            if !NOTHING.contains(&value) {
                let what =
                    format_args!("variable `{NVIDIA_VISIBLE_DEVICES}` is `{value}`; only `void` or `none` are allowed");
                let remedy = "remove the variable and ask for GPUs by `nvidia.com/gpu`, `gpu-fraction` or `gpu-memory`";
                return Err(subject.refuse(&field, what, remedy));
            }
        }
    }
    Ok(())
}

/// Hides GPUs from containers that asked for none.
pub(super) fn hide(subject: &Subject<'_>, pod: &mut Value, warnings: &mut Vec<String>) -> Result<(), Refusal> {
    for seen in others(subject)? {
        if devices(seen.resources).is_some() {
            continue;
        }
        let harmless = |variable: &EnvVar| {
            variable.value_from.is_none() && variable.value.as_deref().is_some_and(|value| NOTHING.contains(&value))
        };
        let set = seen.variables().count();
        if set == 1 && seen.variables().all(harmless) {
            continue;
        }
        if set > 0 {
            let name = seen.name;
            warnings.push(format!(
                "container `{name}` asks for no GPU: its variable `{NVIDIA_VISIBLE_DEVICES}` is set to `void`"
            ));
        }
        let container =
            pod.get_mut("spec").and_then(|spec| spec.get_mut(seen.list)?.get_mut(seen.index)?.as_object_mut());
        if let Some(container) = container {
            let variable = json!({"name": NVIDIA_VISIBLE_DEVICES, "value": "void"});
            set_env(container, NVIDIA_VISIBLE_DEVICES, variable);
        }
    }
    Ok(())
}
