//! A day on which every component uses all of its rights: workloads of all kinds, shared devices, claims, volumes, an eviction, binds
//! that fail, a node that comes back with other devices, and users' mistakes.

use std::time::Duration;

use anyhow::Result;
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
        resource::v1::{DeviceClass, ResourceClaim},
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kai_api::{
    BindRequest,
    names::{annotations, labels, objects},
};
use kai_cli::control_plane::Settings;
use kai_lab::faults::{ApiEffect, ApiFault, NodeAction, Trigger};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    workloads::{self, Gpu},
    world::{NAMESPACE, World, fleet},
};

/// Shared devices, and the reboot.
const SHARED: &str = "t4x4-0";
/// Whole devices and volumes.
const WHOLE: &str = "t4x4-1";
/// Devices of a DRA driver.
const DRIVEN: &str = "kai-e2e-4";
/// The node whose labels say nonsense.
const MISLABELLED: &str = "t4x4-2";
/// An extended resource that a device class serves.
const EXTENDED: &str = "example.com/gpu";

/// How many pods are a crowd on this day.
const CROWD: usize = 4;

/// A part of the day, and who must run in the end because of it.
pub struct Scene {
    play: for<'w> fn(&'w mut World) -> BoxFuture<'w, Result<()>>,
    runs: &'static [&'static str],
    /// The same by the label of their workload.
    apps: &'static [&'static str],
}

/// The day. It goes on whoever fails.
pub const SCENES: &[Scene] = &[
    Scene { play: |world| shared(world).boxed(), runs: &["half"], apps: &[] },
    Scene { play: |world| claims(world).boxed(), runs: &["claimant", "extended"], apps: &[] },
    Scene { play: |world| owners(world).boxed(), runs: &["owned", "set-0"], apps: &["web", "daemon", "cron"] },
    Scene { play: |world| crowd(world).boxed(), runs: &[], apps: &["crowd"] },
    Scene { play: |world| volumes(world).boxed(), runs: &["reader", "writer", "nameless"], apps: &[] },
    Scene { play: |world| eviction(world).boxed(), runs: &["high"], apps: &[] },
    Scene { play: |world| strangers(world).boxed(), runs: &[], apps: &[] },
    Scene { play: |world| reboot(world).boxed(), runs: &[], apps: &[] },
    Scene { play: |world| trouble(world).boxed(), runs: &["troubled"], apps: &[] },
    Scene { play: |world| mistakes(world).boxed(), runs: &[], apps: &[] },
];

/// The cluster of the day, with its control plane ready.
pub async fn world() -> Result<World> {
    let mut fleet = fleet("t4x4*3,kai-e2e")?;
    fleet.nodes.retain(|node| node.name.starts_with("t4x4") || node.name == DRIVEN);
    for node in fleet.nodes.iter_mut().filter(|node| node.name == MISLABELLED) {
        node.labels.insert("nvidia.com/gpu.memory".to_owned(), "lots".to_owned());
    }
    let change = |settings: &mut Settings| {
        settings.elect_leaders(true);
        settings.scheduler.direct_binds_from = CROWD;
    };
    let world = World::start(fleet, change).await?;
    prepare(&world).await?;
    Ok(world)
}

/// Kinds and classes that are there before anybody works.
async fn prepare(world: &World) -> Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let zones = json!({
        "metadata": {"name": "noderesourcetopologies.topology.node.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"}},
        "spec": {
            "group": "topology.node.k8s.io", "scope": "Cluster",
            "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies",
                "singular": "noderesourcetopology", "listKind": "NodeResourceTopologyList"},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    create_all::<CustomResourceDefinition>(world, zones).await?;
    let class = json!({
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"extendedResourceName": EXTENDED,
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
    });
    create_all::<DeviceClass>(world, class).await?;
    let storage = |name: &str, provisioner: &str| {
        json!({"metadata": {"name": name}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer"})
    };
    create_all::<StorageClass>(world, storage("local-disks", "kubernetes.io/no-provisioner")).await?;
    create_all::<StorageClass>(world, storage("made", "example.com/disks")).await?;
    let place = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [WHOLE]}]});
    let volume = json!({
        "metadata": {"name": "disk"},
        "spec": {"storageClassName": "local-disks", "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}}},
    });
    create_all::<PersistentVolume>(world, volume).await?;
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let available = Patch::Merge(json!({"status": {"phase": "Available"}}));
    volumes.patch_status("disk", &PatchParams::default(), &available).await?;
    Ok(())
}

async fn create_all<K>(world: &World, object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    Api::<K>::all(world.client.clone()).create(&kube::api::PostParams::default(), &object).await?;
    Ok(())
}

fn pod(name: &str, node: &str, more: &Value, limits: &Value) -> Value {
    let container = json!({"name": "main", "image": "example/work:1", "resources": {"limits": limits}});
    json!({
        "metadata": {"name": name, "labels": {labels::QUEUE: objects::DEFAULT_QUEUE}, "annotations": more},
        "spec": {"schedulerName": objects::SCHEDULER, "terminationGracePeriodSeconds": 1, "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node}},
    })
}

fn fault(verb: &str, resource: &str, trigger: Trigger, effect: ApiEffect) -> ApiFault {
    ApiFault { verb: Some(verb.to_owned()), resource: Some(resource.to_owned()), trigger, effect }
}

/// Plays a part of the day.
pub async fn play(world: &mut World, scene: &Scene) -> Result<()> {
    (scene.play)(world).await?;
    world.processes.rule(&[]);
    Ok(())
}

/// The first bind of a shared device is refused, and the answer about the first decision is lost.
async fn shared(world: &mut World) -> Result<()> {
    world.processes.rule(&[
        fault("create", "pods/binding", Trigger::Nth(1), ApiEffect::Error(422)),
        fault("create", "bindrequests", Trigger::Nth(1), ApiEffect::LostAnswer),
    ]);
    let half = json!({annotations::GPU_FRACTION: "0.5"});
    world.create::<Pod>(pod("half", SHARED, &half, &json!({}))).await?;
    pass(world, Duration::from_secs(40)).await
}

/// So are the first binds of claimed and extended devices.
async fn claims(world: &mut World) -> Result<()> {
    let refuse = |nth| fault("create", "pods/binding", Trigger::Nth(nth), ApiEffect::Error(422));
    world.processes.rule(&[refuse(1), refuse(2)]);
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
    let claim = json!({
        "metadata": {"name": "one-gpu", "labels": {labels::QUEUE: objects::DEFAULT_QUEUE}},
        "spec": {"devices": {"requests": [request]}},
    });
    world.create::<ResourceClaim>(claim).await?;
    let mut claimant = pod("claimant", DRIVEN, &json!({}), &json!({}));
    claimant["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "one-gpu"}]);
    claimant["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    world.create::<Pod>(claimant).await?;
    world.create::<Pod>(pod("extended", DRIVEN, &json!({}), &json!({EXTENDED: "1"}))).await?;
    pass(world, Duration::from_secs(40)).await
}

fn template(app: &str, restart: &str) -> Value {
    let mut template = pod(app, WHOLE, &json!({}), &json!({}));
    template["metadata"] = json!({"labels": {"app": app, labels::QUEUE: objects::DEFAULT_QUEUE},
        "annotations": {"lab.kai/run-seconds": "forever"}});
    template["spec"]["restartPolicy"] = json!(restart);
    template
}

/// So many pods at once that the scheduler binds them itself.
async fn crowd(world: &mut World) -> Result<()> {
    let job = json!({
        "metadata": {"name": "crowd", "annotations": {annotations::BATCH_MIN_MEMBER: CROWD.to_string()}},
        "spec": {"parallelism": CROWD, "completions": CROWD, "template": template("crowd", "Never")},
    });
    world.create::<Job>(job).await?;
    pass(world, Duration::from_secs(20)).await
}

/// A workload of each kind.
async fn owners(world: &mut World) -> Result<()> {
    let selected = |app: &str| json!({"matchLabels": {"app": app}});
    workloads::deployment(world, "web", 1, &Gpu::Whole(0), objects::DEFAULT_QUEUE).await?;
    let set = json!({"metadata": {"name": "set"}, "spec": {"replicas": 1, "serviceName": "set",
        "selector": selected("set"), "template": template("set", "Always")}});
    world.create::<StatefulSet>(set).await?;
    let daemon = json!({"metadata": {"name": "daemon"},
        "spec": {"selector": selected("daemon"), "template": template("daemon", "Always")}});
    world.create::<DaemonSet>(daemon).await?;
    let cron = json!({"metadata": {"name": "cron"}, "spec": {"schedule": "0 0 1 1 *", "suspend": true,
        "jobTemplate": {"spec": {"template": template("cron", "Never")}}}});
    let cron = world.create::<CronJob>(cron).await?;
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "uid": cron.uid(), "controller": true});
    let job = json!({"metadata": {"name": "cron-1", "ownerReferences": [owner]},
        "spec": {"template": template("cron", "Never")}});
    world.create::<Job>(job).await?;
    // A driver that makes its executors itself.
    let driver = world.create::<Pod>(pod("driver", WHOLE, &json!({}), &json!({}))).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver.uid(), "controller": true});
    let mut owned = pod("owned", WHOLE, &json!({}), &json!({}));
    owned["metadata"]["ownerReferences"] = json!([owner]);
    world.create::<Pod>(owned).await?;
    pass(world, Duration::from_secs(20)).await
}

/// A volume that is there, one that is made, and a claim that was made before there was a usual class.
async fn volumes(world: &mut World) -> Result<()> {
    let claim = |name: &str, class: Option<&str>| {
        let mut claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        if let Some(class) = class {
            claim["spec"]["storageClassName"] = json!(class);
        }
        claim
    };
    for (name, user, class) in
        [("there", "reader", Some("local-disks")), ("made", "writer", Some("made")), ("any", "nameless", None)]
    {
        world.create::<PersistentVolumeClaim>(claim(name, class)).await?;
        let mut user = pod(user, WHOLE, &json!({}), &json!({}));
        user["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        world.create::<Pod>(user).await?;
    }
    let usual = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    let classes: Api<StorageClass> = Api::all(world.client.clone());
    classes.patch("made", &PatchParams::default(), &Patch::Merge(usual)).await?;
    pass(world, Duration::from_secs(30)).await
}

/// A pod of a higher priority takes the place of another.
async fn eviction(world: &mut World) -> Result<()> {
    for (name, class) in [("low", objects::PRIORITY_TRAIN), ("high", objects::PRIORITY_BUILD_PREEMPTIBLE)] {
        let mut pod = pod(name, WHOLE, &json!({}), &json!({"nvidia.com/gpu": "4"}));
        pod["spec"]["priorityClassName"] = json!(class);
        world.create::<Pod>(pod).await?;
        pass(world, Duration::from_secs(30)).await?;
    }
    Ok(())
}

/// Decisions about a pod and a node that nobody has heard of.
async fn strangers(world: &mut World) -> Result<()> {
    let stranger = json!({"metadata": {"name": "stranger"}, "spec": {"podName": "stranger", "selectedNode": WHOLE}});
    world.create::<BindRequest>(stranger).await?;
    let lost = world.create::<Pod>(pod("lost", "nowhere", &json!({}), &json!({}))).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "lost", "uid": lost.uid()});
    let request = json!({"metadata": {"name": "lost", "ownerReferences": [owner]},
        "spec": {"podName": "lost", "selectedNode": "nowhere"}});
    world.create::<BindRequest>(request).await?;
    pass(world, Duration::from_secs(20)).await
}

/// The server is unwell while a pod is bound, for longer than a minute.
async fn trouble(world: &mut World) -> Result<()> {
    world.processes.rule(&[fault("create", "pods/binding", Trigger::Always, ApiEffect::Error(503))]);
    world.create::<Pod>(pod("troubled", SHARED, &json!({}), &json!({}))).await?;
    pass(world, Duration::from_secs(100)).await
}

/// The machine with the shared device comes back with others.
async fn reboot(world: &mut World) -> Result<()> {
    world.lab.inject(SHARED, NodeAction::Reboot { down: Duration::from_secs(30), new_uuids: true });
    pass(world, Duration::from_mins(2)).await
}

/// What users do wrong, and keep doing wrong for longer than a minute.
async fn mistakes(world: &mut World) -> Result<()> {
    // A group in a class that does not exist.
    let mut odd = pod("odd", "nowhere", &json!({}), &json!({}));
    odd["metadata"]["labels"]["priorityClassName"] = json!("imaginary");
    world.create::<Pod>(odd).await?;
    // Waits for one reason, then for another, then for the first again.
    world.create::<Pod>(pod("greedy", WHOLE, &json!({}), &json!({"nvidia.com/gpu": "64"}))).await?;
    pass(world, Duration::from_secs(10)).await?;
    // Its user thinks again: its group, which is there by now, follows.
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::PREEMPTION_DELAY: "10s"}}}));
    pods.patch("greedy", &PatchParams::default(), &patch).await?;
    let nodes: Api<Node> = Api::all(world.client.clone());
    for closed in [true, false] {
        pass(world, Duration::from_secs(70)).await?;
        let patch = Patch::Merge(json!({"spec": {"unschedulable": closed}}));
        nodes.patch(WHOLE, &PatchParams::default(), &patch).await?;
        let still = if closed { "many" } else { "lots" };
        let patch = Patch::Merge(json!({"metadata": {"labels": {"nvidia.com/gpu.memory": still, "seen": still}}}));
        nodes.patch(MISLABELLED, &PatchParams::default(), &patch).await?;
    }
    pass(world, Duration::from_secs(70)).await
}

/// Lets time pass while whoever makes volumes does.
async fn pass(world: &mut World, time: Duration) -> Result<()> {
    for _ in 0..4 {
        world.pass(time / 4).await;
        keep_volumes(world).await?;
    }
    Ok(())
}

/// What the volume controllers of a real cluster do: claims that were given a volume, or whose node was chosen, become bound.
pub async fn keep_volumes(world: &World) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), NAMESPACE);
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let given = volumes.list(&ListParams::default()).await?.items;
    for claim in claims.list(&ListParams::default()).await?.items {
        let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        let mine = |volume: &&PersistentVolume| {
            let to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            to.is_some_and(|to| to.uid == claim.metadata.uid)
        };
        let chosen = claim.annotations().contains_key("volume.kubernetes.io/selected-node");
        let volume = given.iter().find(mine).map(kube::ResourceExt::name_any).or(chosen.then(|| "new".to_owned()));
        if let Some(volume) = volume.filter(|_| !bound) {
            let named = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": volume}});
            claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(named)).await?;
            let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
            claims.patch_status(&claim.name_any(), &PatchParams::default(), &bound).await?;
        }
    }
    Ok(())
}

/// What a user still waits for after these parts of the day.
pub async fn open(world: &World, scenes: &[Scene]) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default()).await?.items;
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let mut open = Vec::new();
    for name in scenes.iter().flat_map(|scene| scene.runs) {
        let found = pods.iter().find(|pod| pod.name_any() == *name);
        if found.map(phase).as_deref() != Some("Running") {
            let says = found.and_then(said).unwrap_or_default();
            open.push(format!("{name} does not run {says}"));
        }
    }
    for app in scenes.iter().flat_map(|scene| scene.apps) {
        let of_app = |pod: &&Pod| pod.labels().get("app").is_some_and(|label| label == app);
        if !pods.iter().filter(of_app).any(|pod| phase(pod) == "Running") {
            open.push(format!("no pod of {app} runs"));
        }
    }
    let silent = |pod: &&Pod| ["greedy", "lost"].contains(&pod.name_any().as_str()) && said(pod).is_none();
    open.extend(pods.iter().filter(silent).map(|pod| format!("{} does not say why it waits", pod.name_any())));
    Ok(open)
}

/// What a pod says about why it waits.
fn said(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let waits = conditions.iter().filter(|condition| condition.status == "False" && condition.type_ != "Ready");
    let words: Vec<String> = waits.filter_map(|condition| condition.message.clone()).collect();
    (!words.is_empty()).then(|| format!("({})", words.join("; ")))
}
