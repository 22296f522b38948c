//! One of several replicas works, the others wait: a Lease says who.
//!
//! Whether another's lease has run out is judged by our own timer, from the moment we saw it change, never by comparing two machines'
//! clocks. Who cannot renew in time stops working before another may begin.

use std::{future::Future, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, api::PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    errors::{Class, classify},
    process::Process,
};

/// The times of a lease. As in client-go and KAI: `duration > deadline > retry`.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long others must wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long the holder tries to renew before it stops working.
    pub deadline: Duration,
    /// The pause between attempts.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { duration: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process was told to end, or the work ended by itself. The lease was given back.
    Finished,
    /// The lease could not be renewed in time; the work was stopped.
    Lost,
}

/// How an attempt to renew went.
enum Renewal {
    /// The lease is ours for another while.
    Done,
    /// Nobody knows; it is still ours until its time runs out.
    Unknown,
    /// It is another's.
    Lost,
}

/// What is known of the lease.
struct Seen {
    version: Option<String>,
    holder: Option<String>,
    transitions: i32,
    /// When it was last seen to change.
    at: Instant,
    wait: Duration,
}

/// Waits for the lease `name`, then runs `work` while it is held. `work` is given a token that is cancelled when it must stop.
pub async fn lead<W>(process: &Process, name: &str, times: Times, work: impl FnOnce(CancellationToken) -> W) -> End
where
    W: Future<Output = ()>,
{
    let election = Election { api: Api::namespaced(process.client.clone(), &process.namespace), process, name, times };
    process.health.ready("leader election");
    let Some(mut held) = election.acquire().await else { return End::Finished };
    tracing::info!(lease = name, identity = process.identity, "leading");
    let token = process.cancel.child_token();
    let mut work = std::pin::pin!(work(token.clone()));
    let end = {
        let mut renewing = std::pin::pin!(election.keep(&mut held));
        tokio::select! {
            () = &mut work => End::Finished,
            () = &mut renewing => End::Lost,
            () = process.cancel.cancelled() => End::Finished,
        }
    };
    token.cancel();
    if end == End::Finished {
        election.release(&held).await;
    } else {
        tracing::warn!(lease = name, "lost the lease");
    }
    end
}

struct Election<'a> {
    api: Api<Lease>,
    process: &'a Process,
    name: &'a str,
    times: Times,
}

impl Election<'_> {
    /// Tries until the lease is ours, or nothing if the process ends first.
    async fn acquire(&self) -> Option<Lease> {
        let mut seen: Option<Seen> = None;
        loop {
            if let Some(lease) = self.attempt(&mut seen).await {
                return Some(lease);
            }
            if !self.process.sleep(self.times.retry).await {
                return None;
            }
        }
    }

    async fn attempt(&self, seen: &mut Option<Seen>) -> Option<Lease> {
        let current = match self.api.get_opt(self.name).await {
            Ok(current) => current,
            Err(error) => {
                tracing::debug!(%error, "lease not read");
                return None;
            }
        };
        let Some(current) = current else {
            let fresh = Lease {
                metadata: ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() },
                spec: Some(self.spec(self.process.now(), 0)),
            };
            return self.api.create(&PostParams::default(), &fresh).await.ok();
        };
        let spec = current.spec.clone().unwrap_or_default();
        let version = current.metadata.resource_version.clone();
        if seen.as_ref().is_none_or(|seen| seen.version != version) {
            let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
            *seen = Some(Seen {
                version,
                holder: spec.holder_identity.clone().filter(|holder| !holder.is_empty()),
                transitions: spec.lease_transitions.unwrap_or(0),
                at: Instant::now(),
                wait: Duration::from_secs(seconds),
            });
        }
        let seen = seen.as_ref()?;
        let ours = seen.holder.as_deref() == Some(&self.process.identity);
        if seen.holder.is_some() && !ours && seen.at.elapsed() < seen.wait {
            return None;
        }
        let transitions = if ours { seen.transitions } else { seen.transitions.saturating_add(1) };
        // Carries the version that was read: whoever else takes it at the same time, one of the two fails.
        let mut taken = current;
        taken.spec = Some(self.spec(self.process.now(), transitions));
        self.api.replace(self.name, &PostParams::default(), &taken).await.ok()
    }

    /// Renews until that has failed for too long.
    async fn keep(&self, held: &mut Lease) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.times.retry).await;
            let left = self.times.deadline.saturating_sub(renewed.elapsed());
            if left.is_zero() {
                return;
            }
            match tokio::time::timeout(left, self.renew(held)).await {
                Ok(Renewal::Done) => renewed = Instant::now(),
                Ok(Renewal::Lost) => return,
                Ok(Renewal::Unknown) | Err(_) => {}
            }
        }
    }

    async fn renew(&self, held: &mut Lease) -> Renewal {
        // A second time only with what a first conflict made us read.
        for _ in 0..2 {
            let mut next = held.clone();
            if let Some(spec) = &mut next.spec {
                spec.renew_time = Some(MicroTime(self.process.now()));
            }
            match self.api.replace(self.name, &PostParams::default(), &next).await {
                Ok(lease) => {
                    *held = lease;
                    return Renewal::Done;
                }
                Err(error) if matches!(classify(&error), Class::Conflict | Class::Gone) => {
                    // Somebody else's, or our own renewal whose answer was lost: the lease says which.
                    match self.api.get_opt(self.name).await {
                        Ok(Some(lease)) if self.is_ours(&lease) => *held = lease,
                        Ok(_) => return Renewal::Lost,
                        Err(_) => return Renewal::Unknown,
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "lease not renewed");
                    return Renewal::Unknown;
                }
            }
        }
        Renewal::Unknown
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.process.identity)
    }

    /// Gives the lease back, so that nobody waits for it to run out.
    async fn release(&self, held: &Lease) {
        let mut free = held.clone();
        if let Some(spec) = &mut free.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        let parameters = PostParams::default();
        let release = self.api.replace(self.name, &parameters, &free);
        // Who could not give it back lets it run out.
        let _ = tokio::time::timeout(Duration::from_secs(2), release).await;
    }

    fn spec(&self, now: Timestamp, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.process.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.times.duration.as_secs()).unwrap_or(15)),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}
