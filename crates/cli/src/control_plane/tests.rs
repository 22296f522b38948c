//! Parts that are stopped say goodbye; parts that are killed do not.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kai_api::names::namespaces;
use kai_lab::{
    client::client_for,
    cluster::{Lab, LabOptions},
    fleet::Fleet,
};
use kube::{Api, api::ListParams};

use super::*;

async fn lab() -> Lab {
    let lab =
        Lab::start(LabOptions::new(Fleet::parse("cpu").unwrap(), Clock::starting_at(jiff::Timestamp::UNIX_EPOCH)));
    lab.ready().await;
    install::install(&lab.client()).await.unwrap();
    lab
}

fn settings(lab: &Lab) -> Settings {
    let mut settings = Settings::new(namespaces::KAI);
    settings.embedded = Some(lab.server().clone());
    settings
}

async fn holders(lab: &Lab) -> Vec<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(lab.client(), namespaces::KAI);
    let leases = leases.list(&ListParams::default()).await.unwrap();
    leases.into_iter().map(|lease| lease.spec.unwrap().holder_identity.filter(|holder| !holder.is_empty())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_stopped_gives_its_lease_back_and_one_that_is_killed_does_not() {
    let lab = lab().await;
    let router = lab.router();
    let mut settings = settings(&lab);
    settings.elect_leaders(true);
    let mut control_plane =
        ControlPlane::start(&[Part::Controllers], move |_| client_for(router.clone()), lab.clock(), settings);
    control_plane.ready().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(holders(&lab).await, [Some("kai-controllers-1".to_owned())]);
    control_plane.stop_part(Part::Controllers).await;
    assert_eq!(holders(&lab).await, [None]);

    control_plane.start_part(Part::Controllers);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(control_plane.is_running(Part::Controllers));
    control_plane.kill(Part::Controllers);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(holders(&lab).await, [Some("kai-controllers-2".to_owned())]);
    assert!(!control_plane.is_running(Part::Controllers));
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_lifeline_is_cut_reaches_nobody() {
    let lab = lab().await;
    let cut = CancellationToken::new();
    let refusals = Refusals::new(Vec::new(), lab.client(), Health::default(), cut.clone());
    let maps: Api<ConfigMap> = Api::namespaced(Way::from(lab.client()).guarded(cut.clone(), refusals), "default");
    maps.list(&ListParams::default()).await.unwrap();
    cut.cancel();
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("the process was killed"), "{error}");
    lab.shutdown().await;
}

#[tokio::test]
async fn nor_does_one_that_was_made_from_a_configuration() {
    let lab = Lab::start(LabOptions::new(Fleet::parse("cpu").unwrap(), Clock::real()));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(axum::serve(listener, lab.router()).into_future());
    let way = Way::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
    let cut = CancellationToken::new();
    let refusals = Refusals::new(Vec::new(), way.client(), Health::default(), cut.clone());
    let maps: Api<ConfigMap> = Api::namespaced(way.guarded(cut.clone(), refusals), "default");
    maps.list(&ListParams::default()).await.unwrap();
    let error = maps.get("missing").await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{error}");
    cut.cancel();
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("the process was killed"), "{error}");
    serving.abort();
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn all_parts_become_ready_and_end_when_told() {
    let lab = lab().await;
    let router = lab.router();
    let settings = settings(&lab);
    let mut control_plane = ControlPlane::start(&Part::ALL, move |_| client_for(router.clone()), lab.clock(), settings);
    control_plane.ready().await.unwrap();
    assert_eq!(control_plane.unmet(), Vec::<String>::new());
    control_plane.shutdown().await;
    lab.shutdown().await;
}
