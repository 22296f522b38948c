//! Least privilege: what the components asked for in all the cases before, against what they say they need.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kai_api::names::namespaces;
use kai_cli::control_plane::{Part, rbac::Holder};
use kai_kit::rbac::{Call, Right};
use kai_tests::{
    calls::Sample,
    case,
    cluster::{Cluster, kai::grant},
    harness::{Case, SIMULATED_NODES, Tier},
    wait,
};
use kube::{Client, client::Body};
use serde_json::json;

use crate::stage::Stage;

pub const CASES: &[Case] = &[
    case!(components_ask_for_nothing_but_what_they_say, SIMULATED_NODES),
    case!(a_component_without_a_right_says_so_and_goes_on_when_it_has_it, &[Tier::ControlPlane]),
    case!(every_right_that_is_taken_away_is_missed, &[Tier::ControlPlane]),
];

/// How long a server takes to notice that a role has changed.
const NOTICE: Duration = Duration::from_secs(20);

/// Rights without which a pod does not come to run: who, of which group and resource. The suite `faults` takes every verb of every
/// right away from the component itself, in virtual time; here is seen that a real server's refusals are understood as well.
const DECISIVE: &[(Holder, &str, &str)] = &[
    (Holder::Part(Part::PodGrouper), "scheduling.run.ai", "podgroups"),
    (Holder::Part(Part::Scheduler), "scheduling.run.ai", "bindrequests"),
    (Holder::Part(Part::Binder), "", "pods/binding"),
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

/// Takes `create` away from a component, lets it miss it, and gives it back.
async fn a_component_without_a_right_says_so_and_goes_on_when_it_has_it(cluster: &Cluster) -> Result<()> {
    let kai = cluster.kai()?;
    let admin = cluster.client();
    let stage = Stage::named(cluster, "bad", "rightless").await?;
    for (holder, group, resource) in DECISIVE {
        let rights = holder.rights(namespaces::KAI);
        let without: Vec<Right> = rights
            .iter()
            .map(|right| {
                let meant = (right.group, right.resource) == (*group, *resource);
                let kept = right.verbs.iter().copied().filter(|verb| !meant || *verb != "create");
                Right { verbs: kept.collect::<Vec<_>>().leak(), ..right.clone() }
            })
            .filter(|right| !right.verbs.is_empty())
            .collect();
        grant(&admin, *holder, &without).await?;
        // Servers notice that a role has changed within moments.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let name = format!("of-{}", holder.component());
        stage.create(stage.pod(&name, &json!({}), &json!({}))).await?;
        let kind = resource.split('/').next().unwrap_or_default();
        let words = format!("right to create {kind}");
        let mut unmet = Vec::new();
        let said = wait::until("the missing right to be named", NOTICE * 2, async || {
            unmet = kai.unmet().await;
            let line = unmet.iter().find(|line| line.starts_with(holder.component()) && line.contains(&words));
            Ok(line.filter(|line| line.contains("cannot create")).cloned())
        });
        said.await.with_context(|| format!("{}: {unmet:?}", holder.component()))?;
        grant(&admin, *holder, &rights).await?;
        stage.running(&name).await?;
        wait::until("all parts to be ready", NOTICE * 3, async || Ok(kai.unmet().await.is_empty().then_some(())))
            .await?;
    }
    stage.clear().await
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
            // That every right is asked for is shown by the suite `faults`.
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
