//! Watches that several parts share, on the embedded API server in virtual time, beside watches of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, Pod};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kit::{
    Mirror, Process, Selection, SharedWatches,
    watch::{self, News, only_status_differs},
};
use kai_lab::client::client_for;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
    core::Status,
    runtime::watcher::{self, Event},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

struct Setting {
    clock: Clock,
    client: Client,
    shared: SharedWatches,
    /// Lists and watches that the shared client asked for.
    asked: Arc<AtomicUsize>,
    /// Ends the shared watches.
    cancel: CancellationToken,
}

impl Setting {
    fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let server = ApiServer::start(Options::new(clock));
        let client = client_for(server.router());
        let asked = Arc::new(AtomicUsize::new(0));
        let (counter, inner) = (Arc::clone(&asked), client.clone());
        let counting = tower::service_fn(move |request: http::Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            let inner = inner.clone();
            async move { inner.send(request).await }.boxed()
        });
        let cancel = CancellationToken::new();
        let shared = SharedWatches::new(Client::new(counting, "default"), cancel.clone());
        Self { clock, client, shared, asked, cancel }
    }

    /// A component; with `shared`, one that shares its watches.
    fn process(&self, shared: bool) -> Process {
        let cancel = CancellationToken::new();
        let mut process = Process::new("test", self.client.clone(), self.clock, cancel, "kai", "test");
        process.shared = shared.then(|| self.shared.clone());
        process
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str, scheduler: &str) {
        let pod = json!({"metadata": {"name": name}, "spec": {"schedulerName": scheduler,
            "containers": [{"name": "c", "image": "i"}]}});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    async fn label(&self, name: &str, value: u32) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"turn": value.to_string()}}}));
        self.pods().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn bind(&self, name: &str, node: &str) {
        let binding = json!({"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let binding: Binding = serde_json::from_value(binding).unwrap();
        let none = PostParams::default();
        self.pods().create_subresource::<_, Status>("binding", name, &none, &binding).await.unwrap();
    }

    async fn report(&self, name: &str, phase: &str, turn: u32) {
        let patch = Patch::Merge(json!({"status": {"phase": phase, "message": turn.to_string()}}));
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
}

fn mirror(process: &Process, selection: Selection<Pod>) -> Mirror<Pod> {
    Mirror::builder().start(process, selection, &process.cancel)
}

fn names(mirror: &Mirror<Pod>) -> Vec<String> {
    mirror.all().iter().map(|pod| pod.name_any()).collect()
}

#[tokio::test(start_paused = true)]
async fn parts_that_start_together_share_one_list_and_one_watch_and_each_object() {
    let setting = Setting::new();
    setting.create("ours", "kai-scheduler").await;
    setting.create("theirs", "default-scheduler").await;
    let (one, other) = (setting.process(true), setting.process(true));
    let all = mirror(&one, Selection::all());
    let ours = mirror(&other, Selection::of_scheduler("kai-scheduler"));
    all.ready().await;
    ours.ready().await;
    assert_eq!((names(&all), names(&ours)), (vec!["ours".to_owned(), "theirs".to_owned()], vec!["ours".to_owned()]));
    setting.create("new", "kai-scheduler").await;
    setting.delete("ours").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((names(&all), names(&ours)), (vec!["new".to_owned(), "theirs".to_owned()], vec!["new".to_owned()]));
    assert!(Arc::ptr_eq(&ours.all()[0], &all.all()[0]), "each has its own copy");
    assert!(one.health.unmet().is_empty() && other.health.unmet().is_empty());
    assert_eq!(setting.asked.load(Ordering::Relaxed), 2, "a list and a watch");
}

#[tokio::test(start_paused = true)]
async fn who_comes_later_hears_of_everything_and_others_hear_of_nothing_twice() {
    let setting = Setting::new();
    let first = setting.process(true);
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let early = Mirror::<Pod>::builder().hear(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let early = early.start(&first, Selection::all(), &first.cancel);
    early.ready().await;
    setting.create("a", "kai-scheduler").await;
    sleep(Duration::from_secs(1)).await;
    let second = setting.process(true);
    let late = mirror(&second, Selection::all());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        (names(&late), setting.asked.load(Ordering::Relaxed)),
        (vec!["a".to_owned()], 2),
        "told before the list"
    );
    assert!(late.ready().now_or_never().is_none(), "but what was written before it began may not be known yet");
    late.ready().await;
    assert_eq!((names(&late), heard.load(Ordering::Relaxed)), (vec!["a".to_owned()], 1));
    assert_eq!(
        setting.asked.load(Ordering::Relaxed),
        4,
        "a list of its own, so that it knows all that was written before it began"
    );
    // One that ends does not end the others.
    first.cancel.cancel();
    setting.create("b", "kai-scheduler").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((names(&late), names(&early)), (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned()]));
    setting.cancel.cancel();
    setting.create("c", "kai-scheduler").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&late), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_makes_no_difference_to_a_listener_is_told_to_the_others_only() {
    let setting = Setting::new();
    let hearing = |selection: Selection<Pod>| {
        let (process, heard) = (setting.process(true), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&heard);
        let mirror = Mirror::<Pod>::builder().hear(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (mirror.start(&process, selection, &process.cancel), heard)
    };
    let (all, heard_by_all) = hearing(Selection::all());
    let (some, heard_by_some) =
        hearing(Selection::all().passing_over(|old, new| only_status_differs(old, new, |name| name == "ours")));
    all.ready().await;
    some.ready().await;
    let heard = || (heard_by_all.load(Ordering::Relaxed), heard_by_some.load(Ordering::Relaxed));
    setting.create("a", "kai-scheduler").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(heard(), (1, 1));
    let patch = Patch::Merge(json!({"status": {"hostIP": "10.0.0.1"}, "metadata": {"annotations": {"theirs": "1"}}}));
    setting.pods().patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(heard(), (2, 1));
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"ours": "1"}}}));
    setting.pods().patch("a", &PatchParams::default(), &patch).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(heard(), (3, 2));
    setting.label("a", 1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(heard(), (4, 3));
    assert_eq!(all.all(), some.all(), "who is told again is told all");
    setting.delete("a").await;
    sleep(Duration::from_secs(1)).await;
    assert!(all.is_empty() && some.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_ends_alone() {
    let setting = Setting::new();
    let (bad, good) = (setting.process(true), setting.process(true));
    let tell = |news: News<Arc<Pod>>| assert!(!matches!(news, News::Applied(_)), "a defect");
    let following = watch::follow(bad.clone(), Selection::all(), "watch of pods".to_owned(), bad.cancel.clone(), tell);
    let following = tokio::spawn(following);
    let shown = mirror(&good, Selection::all());
    shown.ready().await;
    setting.create("a", "kai-scheduler").await;
    assert!(following.await.unwrap_err().is_panic(), "whoever listens hears of the defect");
    setting.create("b", "kai-scheduler").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&shown), ["a", "b"]);
}

/// What the watch of a library shows.
fn watched_by_library(client: &Client, fields: &str) -> Mirror<Pod> {
    let mirror = Mirror::<Pod>::builder().detached();
    let (feeding, config) = (mirror.clone(), watcher::Config::default().fields(fields));
    let events = watcher::watcher(Api::<Pod>::all(client.clone()), config);
    tokio::spawn(events.for_each(move |event| {
        match event.unwrap() {
            Event::Init => feeding.take(News::Begin),
            Event::InitApply(pod) => feeding.take(News::Listed(Arc::new(pod))),
            Event::InitDone => feeding.take(News::Complete),
            Event::Apply(pod) => feeding.take(News::Applied(Arc::new(pod))),
            Event::Delete(pod) => feeding.take(News::Deleted(Arc::new(pod))),
        }
        std::future::ready(())
    }));
    mirror
}

/// The slow and obvious twin of a shared watch is one of one's own, made by others.
#[tokio::test(start_paused = true)]
async fn a_shared_watch_shows_what_an_own_one_shows_whoever_comes_and_goes() {
    for seed in 0..20 {
        let setting = Setting::new();
        let mut random = StdRng::seed_from_u64(seed);
        let own = watched_by_library(&setting.client, "spec.schedulerName=kai-scheduler");
        let mut sharing: Vec<(Process, Mirror<Pod>)> = Vec::new();
        let mut there: Vec<String> = Vec::new();
        for turn in 0..60 {
            match random.random_range(0..10) {
                0 => {
                    let process = setting.process(true);
                    let shown = mirror(&process, Selection::of_scheduler("kai-scheduler"));
                    sharing.push((process, shown));
                }
                1 if !sharing.is_empty() => {
                    let index = random.random_range(0..sharing.len());
                    sharing.remove(index).0.cancel.cancel();
                }
                2..4 if !there.is_empty() => {
                    let index = random.random_range(0..there.len());
                    setting.delete(&there.remove(index)).await;
                }
                4..6 if !there.is_empty() => setting.label(&there[0], turn).await,
                6 => sleep(Duration::from_millis(random.random_range(0..40))).await,
                other => {
                    let name = format!("pod-{turn}");
                    setting.create(&name, if other == 7 { "default-scheduler" } else { "kai-scheduler" }).await;
                    there.push(name);
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
        for (_, shown) in &sharing {
            assert_eq!(shown.all(), own.all(), "seed {seed}");
        }
        setting.cancel.cancel();
    }
}

/// The same in a crowd, where news of pods that have their place come late.
#[tokio::test(start_paused = true)]
async fn when_a_crowd_is_over_a_shared_watch_shows_what_an_own_one_shows() {
    for seed in 0..8 {
        let setting = Setting::new();
        let mut random = StdRng::seed_from_u64(seed);
        let own = watched_by_library(&setting.client, "spec.schedulerName=kai-scheduler");
        let join = || {
            let process = setting.process(true);
            let foretold = |pod: &Pod, _: &str| pod.name_any() != "pod-0";
            let shown = mirror(&process, Selection::of_scheduler("kai-scheduler").foretelling(foretold));
            (process, shown)
        };
        let mut sharing = vec![join()];
        let (mut waiting, mut placed): (Vec<String>, Vec<String>) = Default::default();
        for turn in 0..600 {
            match random.random_range(0..40) {
                0 => sharing.push(join()),
                1 => sleep(Duration::from_millis(random.random_range(0..300))).await,
                2 if !placed.is_empty() => {
                    let index = random.random_range(0..placed.len());
                    setting.delete(&placed.remove(index)).await;
                }
                3 if !placed.is_empty() => {
                    let index = random.random_range(0..placed.len());
                    setting.report(&placed.remove(index), "Succeeded", turn).await;
                }
                4..16 if !waiting.is_empty() => {
                    let name = waiting.remove(0);
                    setting.bind(&name, "n").await;
                    placed.push(name);
                }
                16..30 if !placed.is_empty() => {
                    let index = random.random_range(0..placed.len());
                    setting.report(&placed[index], "Running", turn).await;
                }
                _ => {
                    let name = format!("pod-{turn}");
                    setting.create(&name, "kai-scheduler").await;
                    waiting.push(name);
                }
            }
        }
        sleep(Duration::from_secs(3)).await;
        for (_, shown) in &sharing {
            assert_eq!(shown.all(), own.all(), "seed {seed}");
        }
        setting.cancel.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_places_that_were_foretold_are_told_late_and_once_and_freed_ones_at_once() {
    let setting = Setting::new();
    let (process, heard) = (setting.process(true), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&heard);
    let shown = Mirror::<Pod>::builder().hear(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    // Nobody foretold the place of the first.
    let foretold = |pod: &Pod, node: &str| pod.name_any() != "pod-0" && node == "n";
    let shown = shown.start(&process, Selection::all().foretelling(foretold), &process.cancel);
    shown.ready().await;
    for number in 0..300 {
        setting.create(&format!("pod-{number}"), "kai-scheduler").await;
    }
    sleep(Duration::from_millis(50)).await;
    assert_eq!(heard.swap(0, Ordering::Relaxed), 300, "who comes is told at once");
    for number in 0..300 {
        setting.bind(&format!("pod-{number}"), if number == 1 { "elsewhere" } else { "n" }).await;
        setting.report(&format!("pod-{number}"), "Running", 0).await;
    }
    setting.report("pod-2", "Failed", 1).await;
    setting.delete("pod-3").await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(
        heard.swap(0, Ordering::Relaxed),
        2 + 2 + 1 + 1,
        "two places that nobody foretold, an end and a deletion"
    );
    sleep(Duration::from_secs(2)).await;
    assert_eq!(heard.swap(0, Ordering::Relaxed), 300 - 4, "of each pod the last that is to be told");
    // In quieter times everything is told at once.
    setting.report("pod-4", "Running", 2).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(heard.swap(0, Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_cannot_wait_is_told_of_every_place_at_once() {
    let setting = Setting::new();
    let (patient, hurried) = (setting.process(true), setting.process(true));
    let late = mirror(&patient, Selection::all().foretelling(|_, _| true));
    let soon = mirror(&hurried, Selection::all());
    late.ready().await;
    soon.ready().await;
    for number in 0..300 {
        setting.create(&format!("pod-{number}"), "kai-scheduler").await;
        setting.bind(&format!("pod-{number}"), "n").await;
    }
    sleep(Duration::from_millis(50)).await;
    let placed = |mirror: &Mirror<Pod>| {
        mirror.all().iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).count()
    };
    assert_eq!((placed(&soon), placed(&late)), (300, 300));
}
