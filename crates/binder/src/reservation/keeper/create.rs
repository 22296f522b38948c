//! How a holder comes to be: made under a name that is free, or found already made.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Toleration};
use kai_api::{BindRequest, names::labels};
use kai_kit::{
    errors::{Class, classify, message},
    events::Kind,
    writes,
};
use kube::{ResourceExt, api::PostParams};
use serde_json::json;

use super::Keeper;
use crate::{
    platform::platform_of,
    reservation::{
        holder::Holder,
        plan::{LIMIT, Sharer},
        pod, reservation_names,
    },
    world::{place, pod_key},
};

impl Keeper {
    /// Makes a holder for a group.
    pub(super) async fn create(
        &self,
        node: &Node,
        group: &str,
        requests: &[Arc<BindRequest>],
        sharers: &[Sharer],
        holders: &[Holder],
    ) -> Result<(), kube::Error> {
        let world = &self.world;
        let settings = world.settings.get();
        let node_name = node.name_any();
        let taken = |name: &String| holders.iter().any(|holder| holder.name == *name);
        let Some(name) = reservation_names(&node_name, group).find(|name| !taken(name)) else { return Ok(()) };
        let expects = sharers.iter().filter(|sharer| sharer.group == group).find_map(|sharer| sharer.told.clone());
        let is_first = !holders.iter().any(|holder| holder.group == group);
        if is_first && sharers.iter().any(|sharer| sharer.group == group) {
            let text =
                format!("the reservation pod of GPU group {group} is gone while pods use the GPU; it is made anew");
            world.process.events.tell(node, Kind::Warning, "ReservationLost", text);
        }
        let tolerations = self.tolerations(group, requests, sharers);
        let wanted = pod::Reservation {
            namespace: &world.namespace,
            name: &name,
            node: &node_name,
            group,
            platform: platform_of(node, settings.tegra_mode()),
            tolerations: &tolerations,
            expects: expects.as_deref(),
        };
        let pod = pod::pod(&settings, &wanted).map_err(kube::Error::SerdeError)?;
        let error = match world.reservation_api().create(&PostParams::default(), &pod).await {
            Ok(made) => {
                world.reservations.saw(made);
                return Ok(());
            }
            Err(error) => error,
        };
        match classify(&error) {
            Class::Exists => self.adopt(&node_name, group, &name).await,
            Class::Refused | Class::Gone => {
                let text =
                    format!("its reservation pod in namespace {} cannot be made: {}", world.namespace, message(&error));
                self.trouble(&node_name, group, |trouble, now| {
                    trouble.add(text, now);
                    trouble.times = trouble.times.max(LIMIT);
                });
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Those of a pod that shares the device, so that the holder stays where the pod may stay.
    fn tolerations(&self, group: &str, requests: &[Arc<BindRequest>], sharers: &[Sharer]) -> Vec<Toleration> {
        let running = sharers.iter().filter(|sharer| sharer.group == group).map(|sharer| sharer.pod.clone());
        let coming =
            requests.iter().filter(|request| request.spec.selected_gpu_groups.iter().any(|other| other == group));
        let mut pods = running.chain(coming.map(|request| pod_key(request)));
        let spec = pods.find_map(|key| self.world.pods.get(&key)?.spec.clone());
        spec.and_then(|spec| spec.tolerations).unwrap_or_default()
    }

    /// There is a pod of that name already: ours whose answer was lost, one that stands for another group by now, or one that somebody
    /// changed.
    async fn adopt(&self, node: &str, group: &str, name: &str) -> Result<(), kube::Error> {
        let api = self.world.reservation_api();
        let Some(found) = api.get_opt(name).await? else { return Ok(()) };
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if place(&found) != Some(node) {
            writes::delete(&api, &found, None).await?;
            return Ok(());
        }
        let settings = self.world.settings.get();
        let stands_for = found.labels().get(labels::GPU_GROUP).filter(|known| !known.is_empty()).cloned();
        let stands_for = stands_for.unwrap_or_else(|| group.to_owned());
        let wanted = [(labels::GPU_GROUP, stands_for.as_str()), (labels::APP, settings.app_label.as_str())];
        let is_so = |(key, value): &(&str, &str)| found.labels().get(*key).is_some_and(|known| known == value);
        let labels: BTreeMap<&str, &str> = wanted.into_iter().filter(|label| !is_so(label)).collect();
        let mended = if labels.is_empty() {
            found
        } else {
            let patch = json!({"metadata": {"uid": found.metadata.uid, "labels": labels}});
            writes::merge(&api, self.world.process.component, name, &patch).await?
        };
        self.world.reservations.saw(mended);
        if stands_for != group {
            // By now it is known that the name is taken.
            self.world.node_queue.add(node.to_owned());
        }
        Ok(())
    }
}
