//! Pods come, change and go.

use smallvec::SmallVec;

use crate::{
    cluster::{
        Cluster, numa,
        pod::{Detail, Place, Pod, Rare},
        push_frugally,
        status::Status,
    },
    delta::{self, Constraints, Origin, Phase, Request},
    ids::{ClassId, PodId},
    time::Time,
};

impl Cluster {
    pub(super) fn describe_pod(&mut self, described: &delta::Pod) {
        let known = self.pod(&described.uid);
        let old_group = known.and_then(|pod| self.pods[pod.index()].group);
        if let Some(pod) = known {
            self.detach_pod(pod);
        }
        let pod = self.build_pod(described);
        let group = pod.group;
        let id = match known {
            Some(id) => {
                self.pods[id.index()] = pod;
                id
            }
            None => self.insert_pod(pod),
        };
        if let Some(group) = group {
            self.join_podset(group, id);
        }
        self.attach_pod(id, described);
        if let Some(group) = old_group.filter(|old| Some(*old) != group) {
            self.list_group(group);
            self.release_group(group);
        }
    }

    pub(super) fn forget_pod(&mut self, uid: &str) {
        let Some(id) = self.pod_ids.remove(uid, |id| &self.pods[id as usize].uid).map(PodId) else { return };
        let group = self.pods[id.index()].group;
        self.detach_pod(id);
        let gone = &mut self.pods[id.index()];
        gone.uid = "".into();
        gone.group = None;
        gone.place = Place::nowhere(Status::Ended);
        gone.rare = None;
        self.free_pods.push(id);
        if let Some(group) = group {
            self.list_group(group);
            self.release_group(group);
        }
    }

    /// A pod with a place begins to give it back. What its object says next replaces this.
    pub(super) fn pod_leaves(&mut self, uid: &str, since: Time) {
        let Some(id) = self.pod(uid) else { return };
        let pod = &self.pods[id.index()];
        let was = pod.place.status;
        if !was.is_active_allocated() {
            return;
        }
        let place = pod.place.with(Status::Releasing);
        let group = pod.group;
        self.replace(id, place);
        let pod = &mut self.pods[id.index()];
        pod.fact = Status::Releasing;
        pod.rare.get_or_insert_default().deleted = Some(since);
        if was == Status::Running {
            self.terminating.insert(id);
        }
        if let Some(group) = group {
            self.list_group(group);
        }
    }

    fn insert_pod(&mut self, pod: Pod) -> PodId {
        let uid = pod.uid.clone();
        let id = if let Some(id) = self.free_pods.pop() {
            self.pods[id.index()] = pod;
            id
        } else {
            push_frugally(&mut self.pods, pod);
            PodId::of(self.pods.len() - 1)
        };
        self.pod_ids.insert(&uid, id.0, |id| &self.pods[id as usize].uid);
        id
    }

    /// Takes a pod out of every ledger and list.
    fn detach_pod(&mut self, id: PodId) {
        self.enter(id, -1);
        self.terminating.remove(&id);
        self.invalid_pods.remove(&id);
        self.repellers.remove(&id);
        self.release_claims(id);
        let pod = &self.pods[id.index()];
        let (Some(group), podset) = (pod.group, usize::from(pod.podset)) else { return };
        let group = &mut self.groups[group.index()];
        let pods = match group.podsets.get_mut(podset) {
            Some(podset) => &mut podset.pods,
            None => &mut group.strays,
        };
        if let Some(place) = pods.iter().position(|pod| *pod == id) {
            pods.swap_remove(place);
        }
    }

    /// Enters a pod in every ledger and list.
    fn attach_pod(&mut self, id: PodId, described: &delta::Pod) {
        self.hold_claims(id, described);
        self.enter(id, 1);
        let pod = &self.pods[id.index()];
        if described.deleted.is_some() && described.phase == Phase::Running {
            self.terminating.insert(id);
        }
        if pod.rare.as_ref().is_some_and(|rare| rare.invalid.is_some()) {
            self.invalid_pods.insert(id);
        }
        if self.classes.get(pod.class).constraints.repels() && pod.place.node.is_some() {
            self.repellers.insert(id);
        }
        if let Some(group) = pod.group {
            self.list_group(group);
        }
    }

    fn build_pod(&mut self, described: &delta::Pod) -> Pod {
        let class = self.classes.intern(&described.request, &described.constraints, &mut self.words);
        let invalid = described.invalid.clone().or_else(|| class.as_ref().err().cloned());
        let class = class.unwrap_or_else(|_| self.empty_class());
        let mut labels: Vec<_> =
            described.labels.iter().map(|(key, value)| (self.words.intern(key), self.words.intern(value))).collect();
        labels.sort_unstable();
        let place = self.build_place(described, invalid.is_some());
        let rare = Rare {
            deleted: described.deleted,
            nominated: described.nominated.as_ref().map(|node| self.words.intern(node)),
            subgroup: described.subgroup.as_ref().map(|name| self.words.intern(name)),
            foreign: described.origin == Origin::Foreign,
            invalid,
            ..Rare::default()
        };
        let group = described.group.as_ref().filter(|_| described.origin == Origin::Ours);
        Pod {
            uid: described.uid.as_str().into(),
            created: described.created,
            group: group.map(|key| self.group_named(key)),
            podset: u16::MAX,
            class,
            namespace: self.words.intern(&described.namespace),
            labels: self.label_set(labels.into()),
            role: self.role(described.role),
            fact: place.status,
            place,
            rare: (!rare.is_plain()).then(|| Box::new(rare)),
        }
    }

    fn build_place(&mut self, described: &delta::Pod, invalid: bool) -> Place {
        let placement = described.placement.as_ref();
        let status = match described.phase {
            Phase::Succeeded => Status::Succeeded,
            Phase::Failed => Status::Ended,
            _ if described.deleted.is_some() => Status::Releasing,
            Phase::Running => Status::Running,
            _ if placement.is_some_and(|placement| placement.bound) => Status::Bound,
            _ if placement.is_some() => Status::Binding,
            _ if invalid => Status::Ended,
            Phase::Gated => Status::Gated,
            Phase::Pending => Status::Pending,
        };
        let Some(placement) = placement.filter(|_| status.is_active()) else { return Place::nowhere(status) };
        let numa = numa::uses(&placement.numa, &mut self.words);
        let mut devices: SmallVec<[_; 2]> = placement.devices.iter().map(|name| self.words.intern(name)).collect();
        devices.dedup();
        Place {
            status,
            node: Some(self.node_named(&placement.node)),
            devices,
            detail: (!numa.is_empty()).then(|| Box::new(Detail { numa, ..Detail::default() })),
        }
    }

    /// The class of pods whose request cannot be: it asks for a slot and nothing else.
    fn empty_class(&mut self) -> ClassId {
        let class = self.classes.intern(&Request::default(), &Constraints::default(), &mut self.words);
        class.unwrap_or(ClassId(0))
    }

    fn label_set(&mut self, labels: Box<[(crate::ids::Word, crate::ids::Word)]>) -> u32 {
        if let Some(set) = self.label_set_ids.get(&labels) {
            return *set;
        }
        let set = u32::try_from(self.label_sets.len()).unwrap_or(u32::MAX);
        self.label_sets.push(labels.clone());
        self.label_set_ids.insert(labels, set);
        set
    }

    fn role(&mut self, role: delta::Role) -> u32 {
        *self.role_ids.entry(role).or_insert_with(|| {
            self.roles.push(role);
            u32::try_from(self.roles.len() - 1).unwrap_or(0)
        })
    }

    /// Pods that are being deleted for too long count as stuck from now on.
    pub(crate) fn refresh_terminating(&mut self, now: Time, stuck_after: crate::time::Span) {
        let changes: Vec<(PodId, Status)> = self
            .terminating
            .iter()
            .filter_map(|id| {
                let pod = &self.pods[id.index()];
                let deleted = pod.rare.as_ref()?.deleted?;
                let stuck = now.since(deleted) > stuck_after;
                let status = if stuck { Status::Stuck } else { Status::Releasing };
                (pod.place.status != status).then_some((*id, status))
            })
            .collect();
        for (id, status) in changes {
            let place = self.pods[id.index()].place.with(status);
            self.replace(id, place);
            self.pods[id.index()].fact = status;
        }
    }
}

impl Rare {
    /// Whether nothing is in it.
    fn is_plain(&self) -> bool {
        self.deleted.is_none()
            && self.nominated.is_none()
            && self.subgroup.is_none()
            && self.claims.is_empty()
            && self.claimed_gpus == 0
            && !self.foreign
            && self.invalid.is_none()
    }
}
