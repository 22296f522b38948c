//! What users create: pods, Deployments, gangs and queues, as manifests.

use anyhow::Result;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
use kai_api::{
    Queue,
    names::{annotations, labels, objects},
};
use kube::Api;
use serde_json::{Value, json};

use crate::world::World;

/// What a pod asks of GPUs, as users write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// Whole ones.
    Whole(u32),
    /// A part, such as `0.5`, of so many.
    Fraction(String, u32),
    /// MiB of so many.
    Memory(u32, u32),
}

impl Gpu {
    /// A part of one.
    pub fn part(text: &str) -> Self {
        Self::Fraction(text.to_owned(), 1)
    }

    fn annotations(&self) -> Value {
        let mut written = json!({});
        let count = match self {
            Self::Whole(_) => 1,
            Self::Fraction(part, count) => {
                written[annotations::GPU_FRACTION] = json!(part);
                *count
            }
            Self::Memory(mebibytes, count) => {
                written[annotations::GPU_MEMORY] = json!(mebibytes.to_string());
                *count
            }
        };
        if count > 1 {
            written[annotations::GPU_FRACTION_DEVICES] = json!(count.to_string());
        }
        written
    }

    fn spec(&self) -> Value {
        let mut container = json!({"name": "main", "image": "example/work:1"});
        if let Self::Whole(count) = self
            && *count > 0
        {
            container["resources"] = json!({"limits": {"nvidia.com/gpu": count.to_string()}});
        }
        json!({"schedulerName": objects::SCHEDULER, "terminationGracePeriodSeconds": 1, "containers": [container]})
    }

    fn template(&self, app: &str, queue: &str) -> Value {
        json!({
            "metadata": {"labels": {labels::QUEUE: queue, "app": app}, "annotations": self.annotations()},
            "spec": self.spec(),
        })
    }
}

/// Creates a pod in a queue.
pub async fn pod(world: &mut World, name: &str, gpu: &Gpu, queue: &str) -> Result<Pod> {
    let mut pod = gpu.template(name, queue);
    pod["metadata"]["name"] = json!(name);
    world.create(pod).await
}

/// Creates a Deployment in a queue.
pub async fn deployment(world: &mut World, name: &str, replicas: u32, gpu: &Gpu, queue: &str) -> Result<Deployment> {
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": gpu.template(name, queue),
        },
    });
    world.create(deployment).await
}

/// Creates a Job whose pods start together or not at all.
pub async fn gang(world: &mut World, name: &str, size: u32, gpu: &Gpu, queue: &str) -> Result<Job> {
    let mut template = gpu.template(name, queue);
    template["spec"]["restartPolicy"] = json!("Never");
    template["metadata"]["annotations"]["lab.kai/run-seconds"] = json!("forever");
    let job = json!({
        "metadata": {
            "name": name,
            "labels": {labels::QUEUE: queue},
            "annotations": {annotations::BATCH_MIN_MEMBER: size.to_string()},
        },
        "spec": {"parallelism": size, "completions": size, "backoffLimit": 1000, "template": template},
    });
    world.create(job).await
}

/// Creates a leaf queue with a limit of GPUs; -1 for none.
pub async fn queue(world: &mut World, name: &str, limit: i32) -> Result<Queue> {
    let amount = |limit: i32| json!({"quota": -1, "limit": limit, "overQuotaWeight": 1});
    let queue = json!({
        "metadata": {"name": name},
        "spec": {
            "parentQueue": objects::DEFAULT_PARENT_QUEUE,
            "resources": {"gpu": amount(limit), "cpu": amount(-1), "memory": amount(-1)},
        },
    });
    world.create_in(Api::all(world.client.clone()), queue).await
}
