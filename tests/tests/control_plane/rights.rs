//! Least privilege: what the components asked for in all the cases before, against what they say they need.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request, StatusCode};
use kai_api::names::namespaces;
use kai_cli::control_plane::rbac::Holder;
use kai_kit::rbac::Right;
use kai_tests::{
    calls::{Call, Sample},
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
const NOT_SEEN_HERE: &[(&str, &str, &str, &str)] = &[];

async fn components_ask_for_nothing_but_what_they_say(cluster: &Cluster) -> Result<()> {
    let kai = cluster.kai()?;
    let mut complaints = Vec::new();
    for holder in Holder::ALL {
        let rights = holder.rights(namespaces::KAI);
        for (call, sample) in kai.calls.of(holder) {
            let who = holder.component();
            if !rights.iter().any(|right| call.is_allowed_by(right)) {
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
                let used = calls.iter().any(|(call, _)| call.verb == *verb && call.is_allowed_by(&right));
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
            let Some((call, sample)) = only_under(right, &rights, &calls) else { continue };
            let mut rest = rights.clone();
            rest.remove(index);
            grant(&admin, holder, &rest).await?;
            let refused = wait::until("the right to be missed", NOTICE, async || {
                Ok((again(&client, sample).await? == StatusCode::FORBIDDEN).then_some(()))
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
    let sole = |call: &Call| rights.iter().filter(|other| call.is_allowed_by(other)).count() == 1;
    calls.iter().find(|(call, _)| call.is_allowed_by(right) && sole(call)).map(|(call, sample)| (call, sample))
}

/// Makes a request again, harmlessly: authorization comes before everything else, and nothing is stored.
async fn again(client: &Client, sample: &Sample) -> Result<StatusCode> {
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
    Ok(answer.status())
}
