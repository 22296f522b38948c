//! Pod classes: what decides where a pod fits, kept once for all pods that are equal in it.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::{
    amounts::{Amounts, GPU, LARGEST, Shares, fixed, share, share_of},
    cluster::{numa::NumaNeed, words::Words},
    constraints::Compiled,
    delta::{Constraints, Gpus, Request},
    ids::{ClassId, Word},
};

/// What decides where a pod fits.
#[derive(Clone, Debug)]
pub struct Class {
    /// What it takes of a node: whole GPUs are in it, shares of devices are not.
    pub amounts: Amounts,
    /// Its GPUs.
    pub gpus: Gpus,
    /// What it costs a queue wherever it is placed: without claims, and without GPU memory, which depends on the node.
    pub charge: Shares,
    /// A legacy MIG pod.
    pub legacy_mig: bool,
    /// Asks for MIG profiles.
    pub mig: bool,
    /// Where it may be.
    pub constraints: Compiled,
    /// What a kubelet would align to NUMA zones.
    pub numa: NumaNeed,
    /// The word of each resource that a DRA driver may serve instead of the node: `nvidia.com/gpu` for whole GPUs.
    pub gpu_word: Word,
}

impl Class {
    /// Asks for no GPU of any kind (claims are not of the class).
    #[must_use]
    pub fn is_cpu_only(&self) -> bool {
        self.gpus == Gpus::None && !self.mig
    }

    /// Asks for parts of devices.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.gpus, Gpus::Portion { .. } | Gpus::Memory { .. })
    }

    /// What it costs a queue on devices of `memory` MiB: rounded up to a millionth of a GPU.
    #[must_use]
    pub fn charge_on(&self, memory: Option<u64>) -> Shares {
        let mut charge = self.charge;
        if let Gpus::Memory { devices, mib } = self.gpus {
            let memory = memory.filter(|memory| *memory > 0);
            let each = memory.map_or(0, |memory| share_of(i128::from(mib), memory));
            charge.0[share::GPU] += each * i128::from(devices);
        }
        charge
    }
}

/// All classes seen so far.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    list: Vec<Class>,
    /// What each was made of.
    sources: Vec<(Request, Constraints)>,
    /// Whether the constraints of any speak of other pods or of preferences.
    sociable: bool,
    /// By hash of the source.
    known: FxHashMap<u64, SmallVec<[ClassId; 1]>>,
}

impl Classes {
    /// The class of a request with its constraints, made if it is new; an error says which field cannot be.
    ///
    /// # Errors
    ///
    /// An amount is negative or beyond anything a machine has.
    pub fn intern(
        &mut self,
        request: &Request,
        constraints: &Constraints,
        words: &mut Words,
    ) -> Result<ClassId, String> {
        let mut hasher = FxHasher::default();
        (request, constraints).hash(&mut hasher);
        let same = self.known.entry(hasher.finish()).or_default();
        let known = same.iter().find(|class| {
            let (of_request, of_constraints) = &self.sources[class.index()];
            of_request == request && of_constraints == constraints
        });
        if let Some(class) = known {
            return Ok(*class);
        }
        check(request)?;
        let class = ClassId::of(self.list.len());
        same.push(class);
        let built = build(request, constraints, words);
        let rules = &built.constraints;
        self.sociable |= rules.is_dynamic() || rules.has_preferences() || rules.repels();
        self.list.push(built);
        self.sources.push((request.clone(), constraints.clone()));
        Ok(class)
    }

    /// A class.
    #[must_use]
    pub fn get(&self, class: ClassId) -> &Class {
        &self.list[class.index()]
    }

    /// Whether the constraints of any class speak of other pods or of preferences.
    #[must_use]
    pub fn any_sociable(&self) -> bool {
        self.sociable
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.list.iter()
    }
}

fn build(request: &Request, constraints: &Constraints, words: &mut Words) -> Class {
    let mut amounts = Amounts::default();
    amounts.fixed[fixed::CPU] = request.cpu;
    amounts.fixed[fixed::MEMORY] = request.memory;
    amounts.fixed[fixed::STORAGE] = request.storage;
    amounts.fixed[fixed::PODS] = 1;
    for (name, amount) in &request.extended {
        amounts.add_extended(words.intern(name), *amount);
    }
    let mut gpu_charge = i128::from(request.mig_share);
    match request.gpus {
        Gpus::Whole(count) => {
            amounts.fixed[fixed::GPU] = i64::from(count);
            gpu_charge += i128::from(count) * i128::from(GPU);
        }
        Gpus::Portion { devices, millionths } => gpu_charge += i128::from(devices) * i128::from(millionths),
        Gpus::None | Gpus::Memory { .. } => {}
    }
    Class {
        charge: Shares([i128::from(request.cpu), i128::from(request.memory), gpu_charge]),
        gpus: request.gpus,
        legacy_mig: request.legacy_mig,
        mig: request.extended.keys().any(|name| name.starts_with("nvidia.com/mig-")),
        constraints: Compiled::new(constraints, words),
        numa: NumaNeed::new(&request.numa, words),
        gpu_word: words.intern("nvidia.com/gpu"),
        amounts,
    }
}

fn check(request: &Request) -> Result<(), String> {
    let named = [
        ("cpu", request.cpu),
        ("memory", request.memory),
        ("ephemeral-storage", request.storage),
        ("MIG profiles", request.mig_share),
    ];
    let extended = request.extended.iter().map(|(name, amount)| (name.as_str(), *amount));
    for (name, amount) in named.into_iter().chain(extended) {
        if !(0..=LARGEST).contains(&amount) {
            return Err(format!("request `{name}`: {amount} is not between 0 and {LARGEST}"));
        }
    }
    let (devices, most) = match request.gpus {
        Gpus::None => (1, 1),
        Gpus::Whole(count) => (count, 0),
        Gpus::Portion { devices, millionths } => (devices, u64::from(millionths)),
        Gpus::Memory { devices, mib } => (devices, mib),
    };
    if devices > 1_000_000 {
        return Err(format!("request of GPUs: {devices} devices for one pod are more than any node has"));
    }
    match request.gpus {
        Gpus::Portion { .. } if !(1..=1_000_000).contains(&most) => {
            Err(format!("gpu-fraction: {most} millionths is not above 0 and at most 1"))
        }
        Gpus::Memory { .. } if most == 0 || most > 1 << 40 => {
            Err(format!("gpu-memory: {most} MiB is no memory of a GPU"))
        }
        _ if devices == 0 && request.gpus != Gpus::Whole(0) => {
            Err("gpu-fraction-num-devices: at least one device is needed".to_owned())
        }
        _ => Ok(()),
    }
}
