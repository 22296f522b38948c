//! Compares the annotation on the own pod with what the driver says, and mends it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kai_api::names::annotations::RESERVED_GPU;
use kai_gpu::Devices;
use kai_kit::{Class, classify, errors, writes};
use kube::{Api, Client};
use serde_json::json;

use crate::{Error, Options, Progress, Voice, discovery::only_device};

/// Shown in the pod's managed fields.
const MANAGER: &str = "resource-reservation";

/// How a look at the own pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The annotation is right.
    Right,
    /// The API is in the way: what it said.
    Later(String),
}

/// Looks at the own pod, again and again.
pub(crate) struct Teller {
    pods: Api<Pod>,
    options: Options,
    devices: Arc<dyn Devices>,
    voice: Voice,
    /// What the driver said; the device of a running container never changes.
    uuid: Option<String>,
    /// The annotation was right once.
    told: bool,
}

impl Teller {
    pub(crate) fn new(client: &Client, options: Options, devices: Arc<dyn Devices>, voice: Voice) -> Self {
        let pods = Api::namespaced(client.clone(), &options.pod_namespace);
        Self { pods, options, devices, voice, uuid: None, told: false }
    }

    /// Looks once, and mends what is wrong.
    pub(crate) async fn look(&mut self) -> Result<Outcome, Error> {
        let Options { pod_name, pod_namespace } = &self.options;
        let pod = match self.pods.get(pod_name).await {
            Ok(pod) => pod,
            Err(error) => return Ok(self.trouble("get", &error)),
        };
        let annotated = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RESERVED_GPU));
        let annotated = annotated.filter(|text| !text.is_empty());
        let uuid = match (&self.uuid, annotated) {
            (Some(uuid), _) => uuid.clone(),
            (None, annotated) => {
                (self.voice)(&Progress::Looking);
                match (only_device(&*self.devices, &self.voice), annotated) {
                    (Ok(uuid), _) => uuid,
                    // Whoever wrote it knew more than the driver tells now.
                    (Err(problem), Some(annotated)) => {
                        if !self.told {
                            let (uuid, problem) = (annotated.clone(), problem.to_string());
                            (self.voice)(&Progress::Unchecked { uuid, problem });
                            self.told = true;
                        }
                        return Ok(Outcome::Right);
                    }
                    (Err(problem), None) => return Err(problem),
                }
            }
        };
        self.uuid = Some(uuid.clone());
        match annotated {
            Some(annotated) if *annotated == uuid => {
                if !self.told {
                    (self.voice)(&Progress::Known { uuid });
                }
                self.told = true;
                return Ok(Outcome::Right);
            }
            Some(annotated) => (self.voice)(&Progress::Wrong { annotated: annotated.clone(), uuid: uuid.clone() }),
            None if self.told => (self.voice)(&Progress::Missing),
            None => {}
        }
        tracing::debug!(pod = pod_name, namespace = pod_namespace, uuid, "writing the annotation");
        // The uid keeps the annotation off another pod of the same name.
        let patch = json!({"metadata": {"uid": pod.metadata.uid, "annotations": {RESERVED_GPU: uuid}}});
        if let Err(error) = writes::merge(&self.pods, MANAGER, pod_name, &patch).await {
            return Ok(self.trouble("patch", &error));
        }
        (self.voice)(&Progress::Updated);
        self.told = true;
        Ok(Outcome::Right)
    }

    fn trouble(&self, verb: &str, error: &kube::Error) -> Outcome {
        let Options { pod_name, pod_namespace } = &self.options;
        let remedy = match classify(error) {
            Class::Refused | Class::Unauthorized => {
                format!(" (the service account needs get and patch on pods in namespace {pod_namespace})")
            }
            Class::Gone => " (POD_NAME and POD_NAMESPACE must name the pod this runs in)".to_owned(),
            _ => String::new(),
        };
        Outcome::Later(format!("Cannot {verb} pod {pod_namespace}/{pod_name}: {}{remedy}", errors::message(error)))
    }
}
