//! Events on the embedded API server, in virtual time.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kit::events::{Kind, Recorder};
use kai_lab::client::client_for;
use kube::{Api, api::ListParams};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// An object that events are about.
fn about(number: usize) -> ObjectReference {
    ObjectReference {
        name: Some(format!("pod-{number}")),
        namespace: Some("default".into()),
        uid: Some(number.to_string()),
        ..ObjectReference::default()
    }
}

#[tokio::test(start_paused = true)]
async fn good_news_give_way_to_a_crowd_while_it_lasts_but_not_for_ever() {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let server = ApiServer::start(Options::new(clock));
    let client = client_for(server.router());
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let recorder = Recorder::start(client, clock, "test", CancellationToken::new());
    let written = async || events.list(&ListParams::default()).await.unwrap().items.len();
    // Three times a second so many pods get their places.
    let crowd = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            recorder.tell_of(about(number), Kind::Normal, "Scheduled", "it has a place", BTreeMap::new());
            if number % 50 == 49 {
                sleep(Duration::from_millis(333)).await;
            }
        }
    };
    crowd(0..1000).await;
    let early = written().await;
    assert!(early < 50, "{early} were written while the crowd came");
    sleep(Duration::from_secs(15)).await;
    assert_eq!(written().await, 1000, "after the crowd all are written");
    crowd(1000..9000).await;
    let late = written().await - 1000;
    assert!((1000..4000).contains(&late), "{late} were written of a crowd that did not end for 53 seconds");
}

#[tokio::test(start_paused = true)]
async fn in_a_flood_a_warning_comes_first_and_good_news_come_slowly_with_the_time_at_which_they_were_told() {
    const FLOOD: usize = 200;
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let server = ApiServer::start(Options::new(clock));
    let client = client_for(server.router());
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let recorder = Recorder::start(client, clock, "test", CancellationToken::new());
    for number in 0..FLOOD {
        recorder.tell_of(about(number), Kind::Normal, "Scheduled", "it has a place", BTreeMap::new());
    }
    recorder.tell_of(about(FLOOD), Kind::Warning, "Unschedulable", "it waits", BTreeMap::new());
    sleep(Duration::from_millis(500)).await;
    let early = events.list(&ListParams::default()).await.unwrap().items;
    assert!(early.iter().any(|event| event.reason.as_deref() == Some("Unschedulable")), "the warning waits");
    assert!(early.len() < FLOOD / 2, "{} events within half a second", early.len());
    sleep(Duration::from_secs(10)).await;
    let all = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), FLOOD + 1);
    let told = all.iter().filter_map(|event| event.first_timestamp.as_ref());
    assert!(told.map(|time| time.0).all(|time| time == Timestamp::UNIX_EPOCH));
}
