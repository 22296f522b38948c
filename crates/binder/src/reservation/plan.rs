//! What should happen to the reservation pods of one node, as a function of what is there.
//!
//! A group is *wanted* by requests under way and *used* by pods that are bound; whoever is neither loses its holder. Pods of users are
//! never touched: where two holders have one device and both are used, both stay and it is said.
//!
//! A container that runs keeps the device that it was told, and which device a holder gets is the kubelet's choice. So when the holder of
//! running pods is lost, the new one may get another device:
//!
//! 1. whoever got a device that pods of another group use becomes the holder of that group ([`moves`]): each holder at most once;
//! 2. if nobody got it, further holders are made while the others keep what they have, until one gets it ([`seek`]): at most as many as
//!    the node has devices, for then the kubelet says no.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kai_kit::{Key, backoff::Backoff};

use super::holder::Holder;

/// After this many a holder that cannot be had is given up for the requests that wait for it.
pub(crate) const LIMIT: u32 = 3;
/// After the kubelet refused this many further holders of a group none of which has the group's device, one stays.
const RETRIES: u32 = 3;
/// A group has no more holders than this at once, however many devices the node has.
const MOST_HOLDERS: usize = 32;
/// Pauses between holders of one group.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(5));

/// What has gone wrong with the holders of a group so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) times: u32,
    pub(crate) last: String,
    pub(crate) not_before: Option<Timestamp>,
    /// Uid of the last holder that was replaced: one that goes slowly is noted once.
    pub(crate) replaced: Option<String>,
}

impl Trouble {
    /// Notes that it went wrong once more.
    pub(crate) fn add(&mut self, why: String, now: Timestamp) {
        self.times = self.times.saturating_add(1);
        self.last = why;
        let pause = SignedDuration::try_from(PAUSES.after(self.times)).unwrap_or(SignedDuration::MAX);
        self.not_before = now.saturating_add(pause).ok();
    }

    /// Why requests no longer wait, if so.
    pub(crate) fn verdict(&self) -> Option<&str> {
        (self.times >= LIMIT).then_some(self.last.as_str())
    }
}

/// A pod that runs with a shared device.
#[derive(Clone, Debug)]
pub(crate) struct Sharer {
    pub(crate) pod: Key,
    pub(crate) group: String,
    /// The device that it was told.
    pub(crate) told: Option<String>,
    /// Whether its container runs with the name of the device that it was told.
    pub(crate) runs: bool,
}

/// All that is known of the reservations of a node.
pub(crate) struct Scene<'a> {
    pub(crate) holders: &'a [Holder],
    pub(crate) sharers: &'a [Sharer],
    pub(crate) wanted: &'a BTreeSet<String>,
    pub(crate) troubles: &'a BTreeMap<String, Trouble>,
    pub(crate) node_exists: bool,
    pub(crate) now: Timestamp,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A holder is made for a group.
    Create(String),
    /// A holder that nobody needs goes, after asking the server whether that is still so.
    Release(String),
    /// A holder that is no good goes; this is noted as trouble of its group.
    Replace(String, String),
    /// A second holder of a group goes.
    Drop(String),
    /// What a holder said is no longer sure, for its container restarted while pods use the device: it is asked again.
    Ask(String, i32),
    /// Restarts of a holder that nobody uses yet are noted.
    Note(String, i32),
    /// A pod is told that its device is another one by now.
    Retell(Key, String, String),
    /// The pods of a holder's group have its device by now, whatever they had before.
    Expect(String, String),
    /// A holder stands for another group from now on, whose pods have its device.
    Move(String, String, String),
    /// All is well with a group: trouble that there was is forgotten.
    Settle(String),
    /// Nobody new may join a group, and it is said why.
    Close(String, String),
    /// Something is looked at again then.
    Look(Timestamp),
}

/// What is to be done on a node.
pub(crate) fn plan(scene: &Scene<'_>) -> Vec<Deed> {
    let moves = moves(scene);
    if !moves.is_empty() {
        return moves;
    }
    let used: BTreeSet<&str> = scene.sharers.iter().map(|sharer| sharer.group.as_str()).collect();
    let mut groups: BTreeSet<&str> = used.clone();
    groups.extend(scene.wanted.iter().map(String::as_str));
    groups.extend(scene.holders.iter().map(|holder| holder.group.as_str()));
    let mut deeds = Vec::new();
    let mut kept: Vec<&Holder> = Vec::new();
    for group in groups {
        // Who runs on a node whose object is gone has its device none the less, and the node may come back.
        let needed = used.contains(group) || (scene.node_exists && scene.wanted.contains(group));
        kept.extend(of_group(scene, group, needed && !group.is_empty(), used.contains(group), &mut deeds));
    }
    twins(scene, &kept, &used, &mut deeds);
    taken(scene, &kept, &used, &mut deeds);
    settled(scene, &kept, &mut deeds);
    deeds
}

/// Holders with a device that pods of another group were told and none of their own, as when two were lost and each got the other's.
fn moves(scene: &Scene<'_>) -> Vec<Deed> {
    let mut served: BTreeSet<(&str, &str)> = BTreeSet::new();
    let live = || scene.holders.iter().filter(|holder| holder.is_live() && holder.restarts == holder.checked);
    served.extend(live().filter_map(|holder| Some((holder.group.as_str(), holder.device.as_deref()?))));
    let mut moves = Vec::new();
    for holder in live().filter(|holder| !holder.group.is_empty()) {
        let Some(device) = holder.device.as_deref() else { continue };
        let told = || scene.sharers.iter().filter(|sharer| sharer.told.as_deref() == Some(device));
        if told().any(|sharer| sharer.group == holder.group) {
            continue;
        }
        let owner = told().min_by_key(|sharer| (!sharer.runs, &sharer.group));
        if let Some(owner) = owner.filter(|owner| served.insert((&owner.group, device))) {
            moves.push(Deed::Move(holder.name.clone(), owner.group.clone(), device.to_owned()));
        }
    }
    moves
}

/// Groups with trouble whose holder is as it should be by now.
fn settled(scene: &Scene<'_>, kept: &[&Holder], deeds: &mut Vec<Deed>) {
    for holder in kept.iter().filter(|holder| scene.troubles.contains_key(&holder.group)) {
        let sure = holder.device.is_some() && holder.restarts == holder.checked && !holder.has_wrong_device();
        let about = |deed: &Deed| match deed {
            Deed::Replace(name, _) | Deed::Release(name) => *name == holder.name,
            Deed::Close(group, _) => *group == holder.group,
            _ => false,
        };
        if sure && !deeds.iter().any(about) {
            deeds.push(Deed::Settle(holder.group.clone()));
        }
    }
}

/// A new group whose holder got a device that pods of another group use, because their holder was gone for a moment: it tries again.
fn taken(scene: &Scene<'_>, kept: &[&Holder], used: &BTreeSet<&str>, deeds: &mut Vec<Deed>) {
    for holder in kept.iter().filter(|holder| !used.contains(holder.group.as_str())) {
        let Some(device) = &holder.device else { continue };
        let owner =
            scene.sharers.iter().find(|sharer| sharer.group != holder.group && sharer.told.as_ref() == Some(device));
        let goes = |deed: &Deed| matches!(deed, Deed::Replace(name, _) | Deed::Release(name) if *name == holder.name);
        if let Some(owner) = owner
            && !deeds.iter().any(goes)
        {
            let text = format!("reservation pod {} got {device}, which pods of group {} use", holder.name, owner.group);
            deeds.push(Deed::Replace(holder.name.clone(), text));
        }
    }
}

/// Decides about the holders of one group; gives the one that stays.
fn of_group<'a>(scene: &Scene<'a>, group: &str, needed: bool, used: bool, deeds: &mut Vec<Deed>) -> Option<&'a Holder> {
    let all: Vec<&Holder> = scene.holders.iter().filter(|holder| holder.group == group).collect();
    let going: Vec<&&Holder> = all.iter().filter(|holder| !holder.deleting).collect();
    if !needed {
        deeds.extend(going.iter().map(|holder| Deed::Release(holder.name.clone())));
        return None;
    }
    for holder in &all {
        if let (Some(why), false) = (&holder.ended, holder.deleting) {
            let given_up = scene.troubles.get(group).is_some_and(|trouble| trouble.verdict().is_some());
            if !given_up || used {
                let text = format!("the kubelet of node {} ended reservation pod {}: {why}", holder.node, holder.name);
                deeds.push(Deed::Replace(holder.name.clone(), text));
            }
        }
    }
    let mut live: Vec<&Holder> = all.iter().copied().filter(|holder| holder.is_live()).collect();
    let told: BTreeSet<&str> =
        scene.sharers.iter().filter(|sharer| sharer.group == group).filter_map(|s| s.told.as_deref()).collect();
    live.sort_by_key(|holder| (!holder.device.as_deref().is_some_and(|device| told.contains(device)), holder.rank()));
    let Some((keep, others)) = live.split_first() else {
        if all.is_empty() {
            create(scene, group, used, deeds);
        }
        return None;
    };
    if let Some(sought) = sought(scene, keep) {
        seek(scene, group, sought, &all, &live, deeds);
        return Some(keep);
    }
    for other in others {
        // Both devices are in use by pods of the group: neither can go.
        if other.device.as_deref().is_some_and(|device| told.contains(device)) && other.device != keep.device {
            let text = format!(
                "reservation pods {} and {} both hold a GPU that pods of group {group} use",
                keep.name, other.name
            );
            deeds.push(Deed::Close(group.to_owned(), text));
        } else {
            deeds.push(Deed::Drop(other.name.clone()));
        }
    }
    check_device(scene, keep, used, deeds);
    Some(keep)
}

fn create(scene: &Scene<'_>, group: &str, used: bool, deeds: &mut Vec<Deed>) {
    let trouble = scene.troubles.get(group);
    if !used && trouble.is_some_and(|trouble| trouble.verdict().is_some()) {
        return;
    }
    match trouble.and_then(|trouble| trouble.not_before).filter(|time| *time > scene.now) {
        Some(time) => deeds.push(Deed::Look(time)),
        None => deeds.push(Deed::Create(group.to_owned())),
    }
}

/// The device that pods of a group run with, if its holder has another one.
fn sought<'a>(scene: &Scene<'a>, keep: &Holder) -> Option<&'a str> {
    let is_wrong = keep.restarts == keep.checked && keep.has_wrong_device();
    let mut running = others(scene, keep).filter(|sharer| is_wrong && sharer.runs);
    running.find_map(|sharer| sharer.told.as_deref())
}

/// Pods of a holder's group that were told another device than it has.
fn others<'a>(scene: &Scene<'a>, keep: &Holder) -> impl Iterator<Item = &'a Sharer> {
    let own = scene.sharers.iter().filter(|sharer| sharer.group == keep.group);
    own.filter(|sharer| sharer.told.is_some() && keep.device.is_some() && sharer.told != keep.device)
}

/// Makes one more holder, unless that has been tried often enough. The others keep what they have, else the kubelet would give it again.
fn seek(scene: &Scene<'_>, group: &str, sought: &str, all: &[&Holder], live: &[&Holder], deeds: &mut Vec<Deed>) {
    let refused = scene.troubles.get(group).map_or(0, |trouble| trouble.times);
    if refused < RETRIES && live.len() < MOST_HOLDERS {
        if all.iter().all(|holder| holder.is_live() && holder.device.is_some()) {
            create(scene, group, true, deeds);
        }
        return;
    }
    let Some((keep, others)) = live.split_first() else { return };
    let device = keep.device.as_deref().unwrap_or_default();
    let text = format!(
        "reservation pod {} of group {group} got {device} while running pods of the group use {sought}",
        keep.name
    );
    deeds.push(Deed::Close(group.to_owned(), text));
    deeds.extend(others.iter().map(|other| Deed::Drop(other.name.clone())));
}

/// Whether the device is the one that the pods of the group have.
fn check_device(scene: &Scene<'_>, keep: &Holder, used: bool, deeds: &mut Vec<Deed>) {
    if keep.restarts != keep.checked {
        let deed = if used && keep.device.is_some() { Deed::Ask } else { Deed::Note };
        deeds.push(deed(keep.name.clone(), keep.restarts));
        return;
    }
    let Some(device) = &keep.device else { return };
    let retell = |sharer: &Sharer| Deed::Retell(sharer.pod.clone(), keep.group.clone(), device.clone());
    if keep.has_wrong_device() {
        // Nobody runs with the device of before, as when a machine came back with others: the new one is as good, if it is the group's own.
        if !scene.holders.iter().any(|other| other.group != keep.group && other.device.as_ref() == Some(device)) {
            deeds.extend(others(scene, keep).map(retell));
            deeds.push(Deed::Expect(keep.name.clone(), device.clone()));
        }
        return;
    }
    // Where the same holder says something new its node came back with other devices, and so did the pods' containers; and who does not
    // run was left out when the others were told.
    deeds.extend(others(scene, keep).filter(|sharer| keep.checked > 0 || !sharer.runs).map(retell));
}

/// Two groups with one device, as time-slicing can make them: the one that is used stays, else the older one.
fn twins(scene: &Scene<'_>, kept: &[&Holder], used: &BTreeSet<&str>, deeds: &mut Vec<Deed>) {
    let mut by_device: BTreeMap<&str, Vec<&Holder>> = BTreeMap::new();
    for holder in kept {
        if let Some(device) = &holder.device {
            by_device.entry(device).or_default().push(holder);
        }
    }
    for (device, mut holders) in by_device.into_iter().filter(|(_, holders)| holders.len() > 1) {
        let told = |holder: &Holder| {
            used.contains(holder.group.as_str())
                && scene.sharers.iter().any(|sharer| {
                    sharer.group == holder.group && sharer.told.as_deref().is_none_or(|told| told == device)
                })
        };
        holders.sort_by_key(|holder| (!told(holder), holder.rank()));
        let Some((keep, others)) = holders.split_first() else { continue };
        for other in others {
            let text = format!("reservation pods {} and {} both hold {device}", keep.name, other.name);
            if told(other) {
                deeds.push(Deed::Close(other.group.clone(), text.clone()));
                deeds.push(Deed::Close(keep.group.clone(), text));
            } else {
                deeds.push(Deed::Replace(other.name.clone(), text));
            }
        }
    }
}

#[cfg(test)]
mod tests;
