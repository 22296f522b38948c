//! Lives of certificates, by injected time.

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kit::Process;
use kai_lab::{
    client::{client_for, client_with_faults},
    faults::{ApiEffect, ApiFault, FaultLayer, Trigger},
    seed::Seed,
};
use kube::{Api, api::PostParams};
use tokio_util::sync::CancellationToken;

use super::*;

fn names() -> Vec<String> {
    ["admission.kai-scheduler.svc", "127.0.0.1"].map(str::to_owned).into()
}

fn at(days: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(24 * days)
}

fn step(current: Option<&Material>, days: i64) -> Option<Material> {
    renew(current, &names(), at(days), Times::default()).unwrap()
}

/// What the API server does: believes the bundle that it was last given.
fn trusted(bundle: &Material, shown: &Material, days: i64) -> bool {
    let seen = Material { authorities: bundle.authorities.clone(), ..shown.clone() };
    seen.is_accepted(&names(), at(days))
}

#[test]
fn new_material_is_accepted_for_its_names_and_time_only() {
    let first = step(None, 0).unwrap();
    assert!(first.is_accepted(&names(), at(0)));
    assert!(first.is_accepted(&names(), at(364)));
    assert!(!first.is_accepted(&names(), at(366)));
    assert!(!first.is_accepted(&["other.svc".to_owned()], at(0)));
    assert_eq!(step(Some(&first), 100), None);
    let leaf = validity::of(&certificates(&first.certificate)[0]).unwrap();
    assert_eq!((leaf.from, leaf.until), (at(0) - SignedDuration::from_mins(5), at(365)));
    assert!(!format!("{first:?}").contains("PRIVATE"));
}

#[test]
fn a_leaf_is_renewed_after_two_thirds_of_its_life_by_the_same_authority() {
    let first = step(None, 0).unwrap();
    assert_eq!(step(Some(&first), 243), None);
    let second = step(Some(&first), 244).unwrap();
    assert_eq!(second.authorities, first.authorities);
    assert_ne!(second.certificate, first.certificate);
    assert!(trusted(&first, &second, 500));
    assert_eq!(step(Some(&second), 245), None);
}

#[test]
fn a_new_authority_is_made_known_before_it_signs() {
    // Years of looks, days apart; each time the API servers may still have the bundle of the last one.
    let mut current = step(None, 0).unwrap();
    let mut before = current.clone();
    let (mut authorities, mut most) = (std::collections::BTreeSet::new(), 0);
    for day in (1..5 * 365).step_by(4) {
        if let Some(next) = step(Some(&current), day) {
            current = next;
        }
        let all = certificates(&current.authorities);
        most = most.max(all.len());
        authorities.extend(all.into_iter().map(|authority| authority.to_vec()));
        assert!(trusted(&before, &current, day), "day {day}: an unknown leaf");
        assert!(trusted(&current, &before, day), "day {day}: a leaf that is no longer trusted");
        before = current.clone();
    }
    assert_eq!((authorities.len(), most), (2, 2));
    // The first authority goes when it has run out.
    let late = step(Some(&current), 5 * 365 + 1).unwrap();
    assert_eq!(certificates(&late.authorities).len(), 1);
}

#[test]
fn what_cannot_be_used_is_replaced() {
    let good = step(None, 0).unwrap();
    let other = step(None, 0).unwrap();
    for broken in [
        Material { key: other.key.clone(), ..good.clone() },
        Material { certificate: other.certificate.clone(), key: other.key.clone(), ..good.clone() },
        Material { authority_key: other.authority_key.clone(), ..good.clone() },
        Material { authorities: "nonsense".to_owned(), ..good.clone() },
        Material { certificate: String::new(), ..good.clone() },
    ] {
        let mended = step(Some(&broken), 1).unwrap();
        assert!(mended.is_accepted(&names(), at(1)), "{broken:?}");
        assert_eq!(step(Some(&mended), 1), None);
    }
    let more = [names(), vec!["gpu-7.example.com".to_owned()]].concat();
    let renamed = renew(Some(&good), &more, at(1), Times::default()).unwrap().unwrap();
    assert!(renamed.is_accepted(&more, at(1)));
    assert_eq!(renamed.authorities, good.authorities);
}

#[test]
fn bytes_that_are_no_certificate_have_no_life() {
    let good = certificates(&step(None, 0).unwrap().certificate).remove(0);
    for length in 0..good.len().min(160) {
        assert_eq!(validity::of(&good[..length]), None);
    }
    assert_eq!(validity::of(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
}

#[tokio::test(start_paused = true)]
async fn replicas_agree_whatever_answers_are_lost() {
    for seed in 0..8 {
        let clock = Clock::starting_at(at(0));
        let server = ApiServer::start(Options::new(clock));
        let namespaces: Api<Namespace> = Api::all(client_for(server.router()));
        let namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": "kai-scheduler"}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let faults = [ApiEffect::LostAnswer, ApiEffect::Reset, ApiEffect::Error(409), ApiEffect::Error(503)];
        let faults = faults.map(|effect| ApiFault {
            verb: None,
            resource: Some("secrets".to_owned()),
            trigger: Trigger::Probability(0.15),
            effect,
        });
        let layer = FaultLayer::new(Seed(seed), faults.into());
        let process = |name: &str| {
            let client = client_with_faults(server.router(), &layer);
            Process::new("admission", client, clock, CancellationToken::new(), "kai-scheduler", name)
        };
        let mut keepers: Vec<Keeper> =
            ["a", "b", "c"].map(|name| Keeper::new(&process(name), names(), Times::default())).into();
        // Through the life of the first leaf.
        for _ in 0..30 {
            for keeper in &mut keepers {
                let _ = keeper.ensure().await;
            }
            tokio::time::sleep(Duration::from_hours(240)).await;
        }
        layer.set(Vec::new());
        let mut seen = Vec::new();
        for keeper in &mut keepers {
            seen.push(keeper.ensure().await.unwrap());
        }
        assert!(seen.iter().all(|material| *material == seen[0]), "seed {seed}");
        assert!(seen[0].is_accepted(&names(), clock.now()));
        let secrets: Api<Secret> = Api::namespaced(client_for(server.router()), "kai-scheduler");
        let stored = secrets.get("kai-admission-webhook-tls-secret").await.unwrap();
        assert_eq!(stored.data.unwrap()["tls.crt"].0, seen[0].certificate.as_bytes());
    }
}
