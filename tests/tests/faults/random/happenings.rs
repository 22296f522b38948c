//! What happens in a random run: users come and go, calls fail, processes die, nodes misbehave.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kai_api::names::namespaces;
use kai_cli::control_plane::{Part, Settings};
use kai_lab::{
    faults::{ApiEffect, ApiFault, NodeAction, Trigger},
    fleet::Span,
    seed::Seed,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

use super::fleet;
use crate::{
    invariants::{Facts, State},
    workloads::{self, Gpu},
    world::World,
};

/// A queue without limits and one with.
const QUEUES: [(&str, i32); 2] = [("open", -1), ("tight", 2)];

/// A run.
pub struct Drama {
    pub world: World,
    rng: StdRng,
    aloud: bool,
    script: String,
    nodes: Vec<String>,
    created: u32,
    pods: BTreeSet<String>,
    deployments: BTreeMap<String, u32>,
    gangs: BTreeMap<String, u32>,
    cordoned: BTreeSet<String>,
    /// Whether a node was away, perhaps for so long that its pods were evicted.
    hurt: bool,
}

impl Drama {
    pub async fn begin(seed: u64, aloud: bool) -> Result<Self> {
        let mut rng = StdRng::seed_from_u64(Seed(seed).hash(&["drama"]));
        let fleet = fleet::draw(&mut rng, seed)?;
        let nodes: Vec<String> = fleet.nodes.iter().map(|node| node.name.clone()).collect();
        // In every other drama two pods are a crowd: the scheduler binds whatever needs no preparation itself, and groups are made late.
        let crowded = seed.is_multiple_of(2);
        // In half of each kind the parts share their watches, as in `kai all`.
        let shares = matches!(seed % 4, 0 | 3);
        let change = |settings: &mut Settings| {
            settings.share_watches = shares;
            settings.scheduler.direct_binds_from = usize::from(crowded);
            settings.pod_grouper.put_off_from = if crowded { 2 } else { 0 };
            settings.scheduler.record = std::env::var_os("KAI_FAULT_RECORD").map(Into::into);
        };
        let world = World::start(fleet, change).await?;
        let mut drama = Self {
            world,
            rng,
            aloud,
            script: String::new(),
            nodes,
            created: 0,
            pods: BTreeSet::new(),
            deployments: BTreeMap::new(),
            gangs: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            hurt: false,
        };
        for (name, limit) in QUEUES {
            workloads::queue(&mut drama.world, name, limit).await?;
        }
        Ok(drama)
    }

    /// What has happened, line by line.
    pub fn script(&self) -> String {
        self.script.clone()
    }

    fn tell(&mut self, what: &str) {
        let line = format!("{} {what}", self.world.lab.clock().now());
        if self.aloud {
            println!("{line}");
        }
        let _ = writeln!(self.script, "{line}");
    }

    /// The whole run, up to the last fault.
    pub async fn play(&mut self) -> Result<()> {
        let rules = self.api_faults();
        self.world.processes.rule(&rules);
        // The machines' own calls fail, too, but not as often. To a kubelet a conflict means that the pod is another one.
        if self.rng.random_bool(0.3) {
            self.tell("so do those of the machines");
            let conflict = ApiEffect::Error(409);
            self.world.lab.faults().set(rules.into_iter().filter(|rule| rule.effect != conflict).collect());
        }
        let steps = self.rng.random_range(6..=16);
        for _ in 0..steps {
            self.step().await?;
            let pause = Duration::from_millis(self.rng.random_range(0..8_000));
            self.world.pass(pause).await;
        }
        Ok(())
    }

    /// No more faults: everybody is back, and nodes are as they were unless they are gone.
    pub fn calm(&mut self) {
        self.tell("calm");
        self.world.processes.rule(&[]);
        self.world.lab.faults().set(Vec::new());
        self.world.bring_all_back();
        for node in self.nodes.clone() {
            self.world.lab.inject(&node, NodeAction::Resume);
            self.world.lab.inject(&node, NodeAction::Ready);
        }
    }

    fn api_faults(&mut self) -> Vec<ApiFault> {
        let likely = [0.0, 0.02, 0.05, 0.15][self.rng.random_range(0..4_usize)];
        let span = Span { from: Duration::from_millis(1), to: Duration::from_secs(3) };
        let effects = [
            ApiEffect::Error(500),
            ApiEffect::Error(503),
            ApiEffect::Error(409),
            ApiEffect::Error(429),
            ApiEffect::Reset,
            ApiEffect::Delay(span),
            ApiEffect::LostAnswer,
        ];
        let rule =
            |effect| ApiFault { verb: None, resource: None, trigger: Trigger::Probability(likely / 3.0), effect };
        let rules: Vec<ApiFault> = effects.into_iter().filter(|_| self.rng.random_bool(0.6)).map(rule).collect();
        self.tell(&format!("calls fail with {likely}: {:?}", rules.iter().map(|rule| rule.effect).collect::<Vec<_>>()));
        rules
    }

    fn gpu(&mut self) -> Gpu {
        let parts = ["0.1", "0.25", "0.3", "0.5", "0.5", "0.7", "0.9"];
        let part = parts[self.rng.random_range(0..parts.len())].to_owned();
        match self.rng.random_range(0..10) {
            0..=4 => Gpu::Fraction(part, 1),
            5 => Gpu::Fraction(part, 2),
            6..=7 => Gpu::Memory([2_000, 5_000, 8_000, 30_720][self.rng.random_range(0..4_usize)], 1),
            8 => Gpu::Whole(2),
            _ => Gpu::Whole(1),
        }
    }

    fn node(&mut self) -> String {
        self.nodes[self.rng.random_range(0..self.nodes.len())].clone()
    }

    fn one_of(&mut self, names: &BTreeSet<String>) -> Option<String> {
        let count = names.len();
        (count > 0).then(|| names.iter().nth(self.rng.random_range(0..count)).cloned()).flatten()
    }

    async fn step(&mut self) -> Result<()> {
        match self.rng.random_range(0..20) {
            0..=4 => self.create_pods().await,
            5..=6 => self.create_deployment().await,
            7 => self.create_gang().await,
            8..=9 => self.delete_something().await,
            10 => self.restart_deployment().await,
            11..=14 => {
                self.kill();
                Ok(())
            }
            15..=17 => self.hurt_node().await,
            18 => self.delete_reservation().await,
            _ => {
                self.tell("all kubelets restart");
                self.world.lab.restart_kubelets().await;
                Ok(())
            }
        }
    }

    fn queue(&mut self) -> &'static str {
        QUEUES[usize::from(self.rng.random_bool(0.3))].0
    }

    fn name(&mut self, kind: &str) -> String {
        self.created += 1;
        format!("{kind}-{}", self.created)
    }

    async fn create_pods(&mut self) -> Result<()> {
        for _ in 0..self.rng.random_range(1..=4) {
            let (name, gpu, queue) = (self.name("pod"), self.gpu(), self.queue());
            self.tell(&format!("create pod {name} {gpu:?} in {queue}"));
            workloads::pod(&mut self.world, &name, &gpu, queue).await?;
            self.pods.insert(name);
        }
        Ok(())
    }

    async fn create_deployment(&mut self) -> Result<()> {
        let (name, gpu, queue) = (self.name("deployment"), self.gpu(), self.queue());
        let replicas = self.rng.random_range(1..=5);
        self.tell(&format!("create {name} of {replicas} {gpu:?} in {queue}"));
        workloads::deployment(&mut self.world, &name, replicas, &gpu, queue).await?;
        self.deployments.insert(name, replicas);
        Ok(())
    }

    async fn create_gang(&mut self) -> Result<()> {
        let (name, gpu, queue) = (self.name("gang"), self.gpu(), self.queue());
        let size = self.rng.random_range(2..=4);
        self.tell(&format!("create {name} of {size} {gpu:?} in {queue}"));
        workloads::gang(&mut self.world, &name, size, &gpu, queue).await?;
        self.gangs.insert(name, size);
        Ok(())
    }

    async fn delete_something(&mut self) -> Result<()> {
        let deployments: BTreeSet<String> = self.deployments.keys().cloned().collect();
        let gangs: BTreeSet<String> = self.gangs.keys().cloned().collect();
        match self.rng.random_range(0..4) {
            0 => {
                let Some(name) = self.one_of(&deployments) else { return Ok(()) };
                self.tell(&format!("delete {name}"));
                self.deployments.remove(&name);
                self.world.delete::<Deployment>(&name).await
            }
            1 => {
                let Some(name) = self.one_of(&gangs) else { return Ok(()) };
                self.tell(&format!("delete {name}"));
                self.gangs.remove(&name);
                self.world.delete::<Job>(&name).await
            }
            2 => {
                let all: BTreeSet<String> = self.world.names::<Pod>().await?.into_iter().collect();
                let Some(name) = self.one_of(&all) else { return Ok(()) };
                self.tell(&format!("delete pod {name}"));
                self.pods.remove(&name);
                self.world.delete::<Pod>(&name).await
            }
            _ => {
                let pods = self.pods.clone();
                let Some(name) = self.one_of(&pods) else { return Ok(()) };
                self.tell(&format!("delete pod {name}"));
                self.pods.remove(&name);
                self.world.delete::<Pod>(&name).await
            }
        }
    }

    async fn restart_deployment(&mut self) -> Result<()> {
        let names: BTreeSet<String> = self.deployments.keys().cloned().collect();
        let Some(name) = self.one_of(&names) else { return Ok(()) };
        self.tell(&format!("restart {name}"));
        let now = self.world.lab.clock().now().to_string();
        let annotations = json!({"kubectl.kubernetes.io/restartedAt": now});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        let api: Api<Deployment> = Api::namespaced(self.world.client.clone(), crate::world::NAMESPACE);
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn kill(&mut self) {
        let part = Part::ALL[self.rng.random_range(0..Part::ALL.len())];
        let away = Duration::from_millis(self.rng.random_range(0..20_000));
        self.tell(&format!("kill the {part} for {away:?}"));
        self.world.kill(part, away);
    }

    async fn hurt_node(&mut self) -> Result<()> {
        let node = self.node();
        let action = match self.rng.random_range(0..8) {
            0 => {
                let cordon = self.cordoned.insert(node.clone());
                if !cordon {
                    self.cordoned.remove(&node);
                }
                self.tell(&format!("{} {node}", if cordon { "cordon" } else { "uncordon" }));
                let patch = json!({"spec": {"unschedulable": cordon}});
                let api: Api<Node> = Api::all(self.world.client.clone());
                match api.patch(&node, &PatchParams::default(), &Patch::Merge(patch)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    answer => drop(answer?),
                }
                return Ok(());
            }
            1 => NodeAction::Stop,
            2 => NodeAction::Resume,
            3 => NodeAction::NotReady,
            4 => NodeAction::Ready,
            5 if self.nodes.len() > 1 => NodeAction::Vanish,
            _ => {
                let new_uuids = self.rng.random_bool(0.5);
                NodeAction::Reboot { down: Duration::from_secs(self.rng.random_range(5..120)), new_uuids }
            }
        };
        self.hurt |= !matches!(action, NodeAction::Resume | NodeAction::Ready);
        self.tell(&format!("{node}: {action:?}"));
        self.world.lab.inject(&node, action);
        Ok(())
    }

    async fn delete_reservation(&mut self) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.world.client.clone(), namespaces::RESERVATION);
        let all: BTreeSet<String> =
            api.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        let Some(name) = self.one_of(&all) else { return Ok(()) };
        self.tell(&format!("delete reservation {name}"));
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// Every workload that was created and not deleted has the pods it should have.
    pub fn nothing_is_lost(&self, facts: &Facts) -> Result<()> {
        let live = |app: &str| {
            let of_app = |name: &str| name.strip_prefix(app).is_some_and(|rest| rest.starts_with('-'));
            facts.pods.iter().filter(|pod| of_app(&pod.name) && pod.state != State::Ends).count()
        };
        for (name, size) in self.deployments.iter().chain(&self.gangs) {
            let count = live(name);
            // A Deployment that is being replaced and finds no room for its new pods has some more.
            anyhow::ensure!(
                count >= usize::try_from(*size)?,
                "{name} has {count} pods instead of {size}: {}",
                facts.shown()
            );
        }
        for name in &self.pods {
            let there = facts.pods.iter().any(|pod| pod.name == *name);
            // Nobody makes a bare pod again that was evicted, by a node that failed or for others.
            let evicted = facts.events.iter().any(|event| {
                event.involved_object.name.as_ref() == Some(name) && event.reason.as_deref() == Some("Evict")
            });
            anyhow::ensure!(there || self.hurt || evicted, "pod {name} is lost: {}", facts.shown());
        }
        Ok(())
    }
}
