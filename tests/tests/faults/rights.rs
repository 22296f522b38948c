//! Least privilege: each component lives through a day without each verb of each of its rules. It must miss it, say so in its
//! readiness in words that name the right, neither end nor spin, and after the right is granted everything must come out as if
//! nothing had been.
//!
//! The day ([`day`]) makes the components use all of their rights; what no day needs is no right.

mod admission;
mod day;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kai_api::names::namespaces;
use kai_cli::control_plane::{Part, rbac::Holder};
use kai_kit::rbac::Right;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};

use crate::{
    processes::Who,
    world::{World, in_virtual_time},
};

/// How long a component is watched after it was started without a right, before the day begins.
const START: Duration = Duration::from_secs(25);
/// How long it may take until a component that has its rights is ready again.
const RECOVERY: Duration = Duration::from_mins(2);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(20);
/// How long it is watched for spinning.
const WATCHED: Duration = Duration::from_mins(1);
/// Requests in that time that no component needs that only waits: renewing a lease takes 30.
const SPINNING: u64 = 300;
/// How long everything may take to come out as it should after a right was granted: longer than the longest pause after refusals.
const LATE: Duration = Duration::from_mins(30);

/// One verb of one rule.
#[derive(Clone)]
struct Piece {
    holder: Holder,
    right: Right,
}

impl std::fmt::Display for Piece {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let group = if self.right.group.is_empty() { "" } else { "." };
        let verb = self.right.verbs.first().copied().unwrap_or_default();
        write!(formatter, "{}: {verb} {}{group}{}", self.holder.component(), self.right.resource, self.right.group)
    }
}

impl Piece {
    fn who(&self) -> Who {
        match self.holder {
            Holder::Part(part) => Who::Part(part),
            Holder::Reservation => Who::Reservation,
        }
    }

    /// Whether readiness says that it is missing.
    fn is_missed(&self, world: &World) -> bool {
        self.is_named(&world.plane.unmet())
    }

    /// Whether one of these lines says that it is missing, and what to do.
    fn is_named(&self, unmet: &[String]) -> bool {
        let (resource, subresource) = self.right.resource.split_once('/').unwrap_or((self.right.resource, ""));
        let group = if self.right.group.is_empty() { String::new() } else { format!(".{}", self.right.group) };
        let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let verb = self.right.verbs.first().copied().unwrap_or_default();
        let named = format!("{}: right to {verb} {resource}{group}{subresource}", self.holder.component());
        unmet.iter().any(|line| {
            let rest = line.strip_prefix(&named);
            rest.is_some_and(|rest| rest.starts_with([':', ' ']))
                && line.contains("cannot")
                && line.contains("kai rbac")
        })
    }
}

/// All verbs of all rules of somebody.
fn pieces(holder: Holder) -> Vec<Piece> {
    let rights = holder.rights(namespaces::KAI).into_iter();
    let single = rights.flat_map(|right| {
        right.verbs.iter().map(move |verb| Right { verbs: std::slice::from_ref(verb), ..right.clone() })
    });
    single.map(|right| Piece { holder, right }).collect()
}

/// A component begins again, without the lease that its last life held.
async fn begin_again(world: &mut World, part: Part) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), namespaces::KAI);
    world.plane.kill(part);
    for lease in leases.list(&ListParams::default()).await?.items {
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        if holder.contains(part.component()) {
            leases.delete(&lease.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
        }
    }
    world.plane.start_part(part);
    Ok(())
}

/// Waits until all parts are ready.
async fn recover(world: &mut World) -> Result<()> {
    let mut waited = Duration::ZERO;
    while !world.plane.unmet().is_empty() && waited < RECOVERY {
        world.pass(LOOK).await;
        waited += LOOK;
    }
    let unmet = world.plane.unmet();
    ensure!(unmet.is_empty(), "not ready again after the right was granted: {}", unmet.join("; "));
    Ok(())
}

/// Starts a component without a piece of its rights; whether it has missed it by then. If so it has it again.
async fn missed_at_start(world: &mut World, piece: &Piece) -> Result<bool> {
    let Who::Part(part) = piece.who() else { return Ok(false) };
    world.processes.deny(Some((piece.who(), piece.right.clone())));
    begin_again(world, part).await?;
    world.pass(START).await;
    if !piece.is_missed(world) {
        return Ok(false);
    }
    stays_calm(world, piece).await?;
    world.processes.deny(None);
    recover(world).await?;
    Ok(true)
}

/// A component that lacks something neither ends nor asks all the time.
async fn stays_calm(world: &mut World, piece: &Piece) -> Result<()> {
    world.processes.arm(None);
    world.pass(WATCHED).await;
    let requests = world.processes.requests(piece.who());
    ensure!(requests < SPINNING, "{requests} requests in {} s", WATCHED.as_secs());
    if let Who::Part(part) = piece.who() {
        ensure!(world.plane.is_running(part), "the process has ended");
    }
    Ok(())
}

/// Plays the day without the piece, then gives it back. What the user saw meanwhile, if the component missed it.
async fn missed_by_day(piece: &Piece) -> Result<Option<String>> {
    let mut world = day::world().await?;
    world.processes.deny(Some((piece.who(), piece.right.clone())));
    if let Who::Part(part) = piece.who() {
        begin_again(&mut world, part).await?;
    }
    let (mut refused, mut played) = (0_u64, 0);
    for scene in day::SCENES {
        day::play(&mut world, scene).await?;
        played += 1;
        refused = world.processes.asked(piece.who()).values().sum();
        if refused > 0 {
            break;
        }
    }
    if refused == 0 {
        world.end().await;
        return Ok(None);
    }
    let scenes = &day::SCENES[..played];
    let open = day::open(&world, scenes).await?;
    if piece.holder == Holder::Reservation {
        ensure!(!open.is_empty(), "it was refused {refused} times and nobody misses anything");
    } else {
        ensure!(
            piece.is_missed(&world),
            "it was refused {refused} times and says nothing; {:?}, open: {open:?}",
            world.plane.unmet()
        );
    }
    stays_calm(&mut world, piece).await?;
    world.processes.deny(None);
    recover(&mut world).await?;
    let mut left = open.clone();
    let mut waited = Duration::ZERO;
    while !left.is_empty() && waited < LATE {
        world.pass(LOOK).await;
        day::keep_volumes(&world).await?;
        waited += LOOK;
        left = day::open(&world, scenes).await?;
    }
    ensure!(left.is_empty(), "with the right granted again, still: {left:?}");
    world.end().await;
    Ok(Some(open.join("; ")))
}

/// Takes every verb of every rule away from a component.
fn misses_every_right(holder: Holder) {
    let pieces = pieces(holder);
    let begun = std::time::Instant::now();
    let mut later = Vec::new();
    let mut failures = Vec::new();
    let at_start = in_virtual_time(async {
        let mut world = day::world().await?;
        for piece in &pieces {
            match missed_at_start(&mut world, piece).await {
                Ok(true) => println!("{piece}: missed at the start"),
                Ok(false) => later.push(piece.clone()),
                Err(error) => {
                    failures.push(format!("{piece}: {error:#}"));
                    world.end().await;
                    world = day::world().await?;
                }
            }
        }
        world.end().await;
        Ok(())
    });
    at_start.unwrap_or_else(|error| panic!("{error:#}"));
    for piece in later {
        match in_virtual_time(missed_by_day(&piece)) {
            Ok(Some(seen)) => println!("{piece}: missed during the day; {seen}"),
            Ok(None) => failures.push(format!("{piece}: nobody misses it")),
            Err(error) => failures.push(format!("{piece}: {error:#}")),
        }
    }
    println!("{} rights in {:.1} s", pieces.len(), begun.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), pieces.len(), failures.join("\n"));
}

#[test]
fn a_day_needs_every_right_and_no_other() {
    let outcome = in_virtual_time(async {
        let mut world = day::world().await?;
        world.processes.deny(None);
        for part in Part::ALL {
            begin_again(&mut world, part).await?;
        }
        for scene in day::SCENES {
            day::play(&mut world, scene).await?;
        }
        let open = day::open(&world, day::SCENES).await?;
        ensure!(open.is_empty(), "the day did not come out as it should: {open:?}");
        let mut complaints = Vec::new();
        for holder in Holder::ALL {
            let pieces = pieces(holder);
            let Some(who) = pieces.first().map(Piece::who) else { continue };
            let asked: BTreeMap<_, _> = world.processes.asked(who);
            for call in asked.keys().filter(|call| !pieces.iter().any(|piece| piece.right.allows(call))) {
                // The owner of a pod may be of any kind; who may not read it groups the pod by itself.
                let owner = holder == Holder::Part(Part::PodGrouper) && call.verb == "get";
                if !owner {
                    complaints.push(format!("{} asks without a right: {call:?}", holder.component()));
                }
            }
            let unused = pieces.iter().filter(|piece| !asked.keys().any(|call| piece.right.allows(call)));
            // Without TLS admission keeps no certificates and applies its configurations.
            let unused = unused.filter(|_| holder != Holder::Part(Part::Admission));
            complaints.extend(unused.map(|piece| format!("never used: {piece}")));
        }
        world.end().await;
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn the_pod_grouper_misses_every_right() {
    misses_every_right(Holder::Part(Part::PodGrouper));
}

#[test]
fn the_scheduler_misses_every_right() {
    misses_every_right(Holder::Part(Part::Scheduler));
}

#[test]
fn the_binder_misses_every_right() {
    misses_every_right(Holder::Part(Part::Binder));
}

#[test]
fn the_controllers_miss_every_right() {
    misses_every_right(Holder::Part(Part::Controllers));
}

#[test]
fn the_program_of_reservation_pods_misses_every_right() {
    misses_every_right(Holder::Reservation);
}
