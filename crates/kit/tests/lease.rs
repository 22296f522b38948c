//! Leases on the embedded API server, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kit::{
    Process,
    lease::{End, Times, lead},
};
use kai_lab::{
    client::{client_for, client_with_faults},
    faults::{ApiEffect, ApiFault, FaultLayer, Trigger},
    seed::Seed,
};
use kube::{Api, api::PostParams};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

struct Setting {
    server: ApiServer,
    clock: Clock,
    /// How many work at this moment, and the most that ever did.
    working: Arc<(AtomicU32, AtomicU32)>,
}

struct Replica {
    faults: FaultLayer,
    cancel: CancellationToken,
    task: JoinHandle<End>,
}

impl Setting {
    async fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let server = ApiServer::start(Options::new(clock));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("kai-scheduler".into());
        let api: Api<Namespace> = Api::all(client_for(server.router()));
        api.create(&PostParams::default(), &namespace).await.unwrap();
        Self { server, clock, working: Arc::default() }
    }

    fn replica(&self, identity: &'static str) -> Replica {
        let faults = FaultLayer::new(Seed(1), Vec::new());
        let cancel = CancellationToken::new();
        let client = client_with_faults(self.server.router(), &faults);
        let process = Process::new("scheduler", client, self.clock, cancel.clone(), "kai-scheduler", identity);
        let working = Arc::clone(&self.working);
        let task = tokio::spawn(async move {
            lead(&process, "kai-scheduler", Times::default(), |token| async move {
                let _guard = Working::begin(working);
                token.cancelled().await;
            })
            .await
        });
        Replica { faults, cancel, task }
    }

    async fn holder(&self) -> Option<String> {
        let api: Api<Lease> = Api::namespaced(client_for(self.server.router()), "kai-scheduler");
        api.get_opt("kai-scheduler").await.unwrap().and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity)
    }

    fn now_working(&self) -> u32 {
        self.working.0.load(Ordering::SeqCst)
    }

    fn most_working(&self) -> u32 {
        self.working.1.load(Ordering::SeqCst)
    }
}

struct Working(Arc<(AtomicU32, AtomicU32)>);

impl Working {
    fn begin(count: Arc<(AtomicU32, AtomicU32)>) -> Self {
        let now = count.0.fetch_add(1, Ordering::SeqCst) + 1;
        count.1.fetch_max(now, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn unreachable_server() -> Vec<ApiFault> {
    vec![ApiFault { verb: None, resource: None, trigger: Trigger::Always, effect: ApiEffect::Reset }]
}

#[tokio::test(start_paused = true)]
async fn one_of_two_works_and_the_other_takes_over_when_it_leaves() {
    let setting = Setting::new().await;
    let first = setting.replica("first");
    sleep(Duration::from_secs(1)).await;
    let second = setting.replica("second");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(setting.holder().await.as_deref(), Some("first"));
    assert_eq!(setting.now_working(), 1);
    first.cancel.cancel();
    assert_eq!(first.task.await.unwrap(), End::Finished);
    // It gave the lease back, so that nobody waits for it to run out.
    sleep(Duration::from_secs(4)).await;
    assert_eq!(setting.holder().await.as_deref(), Some("second"));
    assert_eq!((setting.now_working(), setting.most_working()), (1, 1));
    second.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_server_stops_before_another_begins() {
    let setting = Setting::new().await;
    let first = setting.replica("first");
    sleep(Duration::from_secs(1)).await;
    let second = setting.replica("second");
    sleep(Duration::from_secs(30)).await;
    first.faults.set(unreachable_server());
    assert_eq!(first.task.await.unwrap(), End::Lost);
    assert_eq!(setting.now_working(), 0);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(setting.holder().await.as_deref(), Some("second"));
    assert_eq!((setting.now_working(), setting.most_working()), (1, 1));
    second.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_of_the_server_and_lost_answers_do_not_end_the_work() {
    let setting = Setting::new().await;
    let replica = setting.replica("first");
    sleep(Duration::from_secs(5)).await;
    replica.faults.set(unreachable_server());
    sleep(Duration::from_secs(5)).await;
    let lost = ApiFault {
        verb: Some("update".into()),
        resource: Some("leases".into()),
        trigger: Trigger::Nth(1),
        effect: ApiEffect::LostAnswer,
    };
    replica.faults.set(vec![lost]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((setting.now_working(), setting.most_working()), (1, 1));
    assert!(!replica.task.is_finished());
    replica.cancel.cancel();
}
