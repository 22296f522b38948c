//! Least privilege: what the components asked for in all the cases before, against what they say they need.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kai_api::names::namespaces;
use kai_cli::control_plane::rbac::Holder;
use kai_kit::rbac::{Call, Right};
use kai_tests::{
    calls::Sample,
    case,
    cluster::{Cluster, kai::grant},
    harness::{Case, SIMULATED_NODES, Tier},
    wait,
};
use kube::{Client, client::Body};

pub const CASES: &[Case] = &[
    case!(components_ask_for_nothing_but_what_they_say, SIMULATED_NODES),
    case!(components_say_nothing_but_what_they_ask_for, SIMULATED_NODES),
    case!(every_right_that_is_taken_away_is_missed, &[Tier::ControlPlane]),
];

/// How long a server takes to notice that a role has changed.
const NOTICE: Duration = Duration::from_secs(20);

/// Rights that this suite cannot make a component use, each with the situation that would.
const NOT_SEEN_HERE: &[(&str, &str, &str, &str)] = &[
    ("admission", "secrets", "patch", "the certificate is renewed after months"),
    ("admission", "secrets", "get", "on tier 1 there are no certificates"),
    ("admission", "secrets", "create", "on tier 1 there are no certificates"),
    ("admission", "mutatingwebhookconfigurations", "create", "on tier 1 they are applied with patches"),
    ("admission", "validatingwebhookconfigurations", "create", "on tier 1 they are applied with patches"),
    ("binder", "resourceclaims", "create", "claims for extended resources"),
    ("binder", "resourceclaims", "delete", "claims for extended resources"),
    ("binder", "resourceclaims", "patch", "claims of others whose finalizer is missing"),
    ("binder", "configmaps", "get", "a map that exists already"),
    ("binder", "configmaps", "patch", "a map that says something else"),
    ("binder", "configmaps", "delete", "a bind that is taken back"),
    ("binder", "nodes", "get", "a node that the watch has not told of yet"),
    ("binder", "storageclasses", "list", "claims that name no class"),
    ("binder", "persistentvolumeclaims", "patch", "volumes that are made on demand"),
    ("binder", "pods/status", "patch", "a bind that fails"),
    ("binder", "events", "patch", "the same event again"),
    ("controllers", "events", "patch", "the same event again"),
    ("pod-grouper", "events", "patch", "the same event again"),
    ("scheduler", "events", "patch", "the same event again"),
    ("pod-grouper", "pods", "get", "pods that own pods"),
    ("scheduler", "bindrequests", "delete", "a decision that failed or whose node is gone"),
    ("scheduler", "bindrequests", "get", "a decision whose answer was lost"),
    ("scheduler", "pods", "get", "an eviction whose answer was lost"),
    ("scheduler", "noderesourcetopologies", "watch", "a cluster that knows this kind"),
];

async fn components_ask_for_nothing_but_what_they_say(cluster: &Cluster) -> Result<()> {
    let kai = cluster.kai()?;
    let mut complaints = Vec::new();
    for holder in Holder::ALL {
        let rights = holder.rights(namespaces::KAI);
        for (call, sample) in kai.calls.of(holder) {
            let who = holder.component();
            if !rights.iter().any(|right| right.allows(&call)) {
                complaints.push(format!("{who} asks without a right: {call:?} ({} times)", sample.count));
            } else if sample.forbidden > 0 && cluster.tier() == Tier::ControlPlane {
                complaints.push(format!("{who} was refused {} times: {call:?}", sample.forbidden));
            }
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n        "));
    Ok(())
}

async fn components_say_nothing_but_what_they_ask_for(cluster: &Cluster) -> Result<()> {
    let kai = cluster.kai()?;
    let mut complaints = BTreeSet::new();
    for holder in Holder::ALL {
        let calls = kai.calls.of(holder);
        for right in holder.rights(namespaces::KAI) {
            for verb in right.verbs {
                let used = calls.iter().any(|(call, _)| call.verb == *verb && right.allows(call));
                let known = NOT_SEEN_HERE.iter().any(|(component, resource, listed, _)| {
                    (*component, *resource, *listed) == (holder.component(), right.resource, *verb)
                });
                if !used && !known {
                    complaints.insert(format!(
                        "{}: {verb} {} ({}) in {:?}",
                        holder.component(),
                        right.resource,
                        right.group,
                        right.scope
                    ));
                }
            }
        }
    }
    ensure!(
        complaints.is_empty(),
        "rights that were never used:\n        {}",
        complaints.into_iter().collect::<Vec<_>>().join("\n        ")
    );
    Ok(())
}

/// Takes each rule of each component away, and makes a request again that the component has made under it.
async fn every_right_that_is_taken_away_is_missed(cluster: &Cluster) -> Result<()> {
    let kai = cluster.kai()?;
    let admin = cluster.client();
    let mut complaints = Vec::new();
    for holder in Holder::ALL {
        let client = kai.client_of(holder)?;
        let rights = holder.rights(namespaces::KAI);
        let calls = kai.calls.of(holder);
        for index in 0..rights.len() {
            let Some(right) = rights.get(index) else { continue };
            // What was never asked for is a complaint of the case before this one.
            let Some((call, sample)) = only_under(right, &rights, &calls) else { continue };
            wait::until("the right to be there", NOTICE, async || {
                Ok((!is_refused(&client, sample).await?).then_some(()))
            })
            .await
            .with_context(|| format!("{} cannot {} {}", holder.component(), call.verb, call.resource))?;
            let mut rest = rights.clone();
            rest.remove(index);
            grant(&admin, holder, &rest).await?;
            let refused = wait::until("the right to be missed", NOTICE, async || {
                Ok(is_refused(&client, sample).await?.then_some(()))
            });
            if refused.await.is_err() {
                complaints.push(format!(
                    "{} can still {} {} without its rule",
                    holder.component(),
                    call.verb,
                    call.resource
                ));
            }
        }
        grant(&admin, holder, &rights).await?;
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n        "));
    Ok(())
}

/// A call that only this right allows.
fn only_under<'a>(right: &Right, rights: &[Right], calls: &'a [(Call, Sample)]) -> Option<(&'a Call, &'a Sample)> {
    let sole = |call: &Call| rights.iter().filter(|other| other.allows(call)).count() == 1;
    calls.iter().find(|(call, _)| right.allows(call) && sole(call)).map(|(call, sample)| (call, sample))
}

/// Makes a request again, harmlessly: authorization comes before everything else, and nothing is stored. Whether it was refused for
/// want of a right.
async fn is_refused(client: &Client, sample: &Sample) -> Result<bool> {
    let path = sample.uri.path();
    let uri = match sample.method {
        // A watch that is allowed would not end by itself.
        Method::GET => {
            let query = sample.uri.query().unwrap_or_default();
            let kept: Vec<&str> =
                query.split('&').filter(|part| !part.is_empty() && !part.starts_with("timeoutSeconds=")).collect();
            format!("{path}?{}", [kept, vec!["timeoutSeconds=1"]].concat().join("&"))
        }
        _ => format!("{path}?dryRun=All"),
    };
    let media = if sample.method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if sample.method == Method::GET { Body::empty() } else { Body::from(b"{}".to_vec()) };
    let request = Request::builder().method(sample.method.clone()).uri(uri).header("content-type", media).body(body)?;
    let answer = client.send(request).await.context("make a request again")?;
    if answer.status() != StatusCode::FORBIDDEN {
        return Ok(false);
    }
    // A namespace that is going takes nothing new, whoever asks.
    let body = answer.into_body().collect().await?.to_bytes();
    Ok(!String::from_utf8_lossy(&body).contains("because it is being terminated"))
}
