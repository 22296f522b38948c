//! The task that owns the model: takes changes, opens a window at the first, runs a cycle when it closes.

use std::{collections::BTreeMap, fs::File, io::BufWriter, sync::Arc, time::Duration};

use kai_api::{Config, SchedulingShard, names::objects};
use kai_core::{plan::Verdict, policy::Policy, time::Time};
use kai_kit::{Pace, Process, watch::News};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Options, Planner,
    change::Change,
    job_order::JobOrder,
    leader,
    metrics::Metrics,
    model::{Model, Stays},
    outcome::{Bound, Outcome},
    setup::{self, Found, Setup},
    snapshot,
    status::{Statuses, Target, Wanted},
    watches::Watches,
    write::{Writer, evict, note},
};

/// How many changes are taken at once.
const BATCH: usize = 4096;
/// How often it is seen whether a cycle takes too long, at most.
const LOOK: Duration = Duration::from_secs(5);
/// The condition of readiness that the cycle is.
pub(crate) const CYCLE: &str = "cycle";
/// The condition of readiness that knowing the Config and the shards is.
const SETTINGS: &str = "settings";
/// How long what was begun may take to end.
const GOODBYE: Duration = Duration::from_secs(3);
/// The pause before they are asked for again.
const PAUSE: Duration = Duration::from_secs(2);

/// The scheduler.
pub(crate) struct Scheduler {
    pub(crate) process: Process,
    pub(crate) options: Options,
    pub(crate) setup: Setup,
    pub(crate) planner: Planner,
    pub(crate) model: Model,
    pub(crate) policy: Policy,
    pub(crate) writer: Writer,
    pub(crate) statuses: Statuses,
    pub(crate) metrics: Metrics,
    /// What is wrong with objects, as it was told.
    pub(crate) verdicts: Vec<Verdict>,
    /// Pods that were told that they will be placed, by key, and where.
    pub(crate) pipelined: BTreeMap<String, String>,
    /// Pods that were placed lately.
    pub(crate) pace: Pace,
    /// When time alone makes a cycle worth while.
    pub(crate) next_time: Option<Instant>,
    /// When the cycle under way began.
    pub(crate) cycle_began: Arc<Mutex<Option<Instant>>>,
    not_before: Option<Instant>,
    file: Option<setup::File>,
    found: Found,
    shards_listed: bool,
    configs_listed: bool,
    /// When the first change of the window came, and the last.
    window: Option<(Instant, Instant)>,
    epoch: u64,
    watching: CancellationToken,
    changes: mpsc::UnboundedSender<Change>,
    tasks: JoinSet<()>,
}

/// Runs until the process ends; from the beginning whenever it is set up otherwise.
pub(crate) async fn run(process: Process, options: Options, planner: Planner) -> Result<(), Error> {
    let metrics = Metrics::register(&process.metrics);
    let file = options.scheduler_conf.as_deref().map(setup::File::read).transpose()?;
    while !process.cancel.is_cancelled() {
        let Some(found) = read(&process).await else { break };
        // What this run began ends with it; its events go on.
        let run = Process { cancel: process.cancel.child_token(), ..process.clone() };
        let guard = run.cancel.clone().drop_guard();
        Box::pin(run_as(run, options.clone(), planner, metrics.clone(), file.clone(), found)).await?;
        drop(guard);
    }
    Ok(())
}

/// The Config and the shards; nothing if the process ends first.
async fn read(process: &Process) -> Option<Found> {
    loop {
        match Found::read(&process.client).await {
            Ok(found) => {
                process.health.ready(SETTINGS);
                return Some(found);
            }
            Err(error) => process.health.not_ready(SETTINGS, kai_kit::errors::message(&error)),
        }
        if !process.sleep(PAUSE).await {
            return None;
        }
    }
}

/// Runs until the process ends or is set up otherwise.
async fn run_as(
    process: Process,
    options: Options,
    planner: Planner,
    metrics: Metrics,
    file: Option<setup::File>,
    found: Found,
) -> Result<(), Error> {
    let (changes, mut waiting) = mpsc::unbounded_channel();
    let (leading, mut leads) = watch::channel(!options.leader_elect);
    let setup::Conclusion { setup, policy, .. } = found.conclude(&options, file.as_ref());
    let mut model = Model::new(setup.settings.clone(), setup.shape.clone());
    model.recorder = recorder(&options)?;
    process.health.not_ready(CYCLE, "none was run yet");
    let mut tasks = JoinSet::new();
    if options.leader_elect {
        tasks.spawn(leader::follow(process.clone(), setup.lease.clone(), leading));
    }
    if options.plugin_server_port != 0 {
        snapshot::serve(&process, &options, changes.clone(), &mut tasks).await?;
    }
    let statuses = Statuses::new(process.clone(), leads.clone());
    tasks.spawn(statuses.clone().run(setup.status_workers));
    let disruption = setup.disruption_condition;
    let mut scheduler = Scheduler {
        writer: Writer::new(process.clone(), &options, disruption, changes.clone(), leads.clone()),
        metrics,
        policy,
        verdicts: Vec::new(),
        pipelined: BTreeMap::new(),
        pace: Pace::default(),
        next_time: None,
        cycle_began: Arc::default(),
        not_before: None,
        file,
        found,
        shards_listed: false,
        configs_listed: false,
        window: None,
        epoch: 0,
        watching: process.cancel.child_token(),
        process,
        options,
        setup,
        planner,
        model,
        statuses,
        changes,
        tasks,
    };
    scheduler.watch();
    scheduler.watch_over_cycles();
    let mut batch = Vec::new();
    loop {
        let due = scheduler.due();
        tokio::select! {
            biased;
            () = scheduler.process.cancel.cancelled() => break,
            _ = waiting.recv_many(&mut batch, BATCH) => {
                for change in batch.drain(..) {
                    scheduler.take(change);
                }
            }
            Ok(()) = leads.changed() => {
                scheduler.leads_changed(*leads.borrow_and_update());
            }
            () = until(due), if due.is_some() => {}
        }
        if *leads.borrow() && scheduler.is_due() {
            scheduler.cycle();
        } else if !*leads.borrow() && scheduler.is_synced() {
            scheduler.process.health.ready(CYCLE);
        }
    }
    scheduler.model.finish();
    // Leases are given back, ports are freed.
    let ending = async { while scheduler.tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GOODBYE, ending).await;
    Ok(())
}

fn recorder(options: &Options) -> Result<Option<kai_trace::Recorder<BufWriter<File>>>, Error> {
    let Some(path) = &options.record else { return Ok(None) };
    let failed = |source| Error::Record { path: path.display().to_string(), source };
    let file = File::create(path).map_err(failed)?;
    let recorder = kai_trace::Recorder::new(BufWriter::new(file));
    recorder.map(Some).map_err(|error| failed(std::io::Error::other(error)))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Scheduler {
    fn watch(&mut self) {
        self.watching = self.process.cancel.child_token();
        Watches {
            process: &self.process,
            epoch: self.epoch,
            foretold: self.model.binds.foretold.clone(),
            changes: self.changes.clone(),
            cancel: self.watching.clone(),
            tasks: &mut self.tasks,
        }
        .start();
    }

    /// A cycle that takes too long makes the process unready.
    fn watch_over_cycles(&mut self) {
        let (process, began) = (self.process.clone(), Arc::clone(&self.cycle_began));
        let longest = Duration::from_secs(self.options.longest_cycle);
        self.tasks.spawn(async move {
            while process.sleep(longest.max(LOOK)).await {
                if began.lock().is_some_and(|began| began.elapsed() > longest) {
                    process.health.not_ready(CYCLE, format!("takes longer than {} s", longest.as_secs()));
                }
            }
        });
    }

    /// The time, as the core counts it.
    pub(crate) fn now(&self) -> Time {
        Time(self.process.now().as_millisecond())
    }

    fn is_synced(&self) -> bool {
        self.shards_listed && self.configs_listed && self.model.is_listed()
    }

    /// When the next cycle is to be run, if anything is known about that.
    fn due(&self) -> Option<Instant> {
        if !self.is_synced() || !self.writer.leads() {
            return None;
        }
        let (window, longest) = (self.options.window(), self.options.longest_window());
        // While decisions still wait to be written, a further one is no hurry: more changes are gathered for it.
        let behind = self.writer.is_behind();
        let window =
            self.window.map(|(first, last)| if behind { (last + window).min(first + longest) } else { first + window });
        let due = [window, self.next_time].into_iter().flatten().min();
        due.map(|due| self.not_before.map_or(due, |earliest| due.max(earliest)))
    }

    fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    fn leads_changed(&mut self, leads: bool) {
        if leads {
            self.model.notes.forget_told();
            self.verdicts.clear();
            self.open_window();
            self.correct_misled();
        }
    }

    /// Pods that were told that they wait when they already had their place are told so.
    fn correct_misled(&mut self) {
        if !self.writer.leads() {
            return;
        }
        let notes = &mut self.model.notes;
        for (key, corrected) in notes.misled.iter_mut().filter(|(_, corrected)| !**corrected) {
            *corrected = true;
            if let Some(note) = notes.pods.get(key) {
                let wanted = Wanted::Placed { uid: Arc::clone(&note.uid) };
                self.statuses.set(Target::Pod(Arc::clone(key)), wanted, 0);
            }
        }
    }

    pub(crate) fn open_window(&mut self) {
        let now = Instant::now();
        self.window = Some((self.window.map_or(now, |(first, _)| first), now));
    }

    /// A cycle begins: what comes from now on is for the next. When the first change came.
    pub(crate) fn close_window(&mut self) -> Option<Instant> {
        self.next_time = None;
        self.not_before = None;
        self.model.changed = false;
        self.window.take().map(|(first, _)| first)
    }

    /// Nothing is decided for some time.
    pub(crate) fn rest(&mut self, pause: Duration) {
        self.not_before = Some(Instant::now() + pause);
    }

    fn take(&mut self, change: Change) {
        let synced = self.is_synced();
        self.model.now = self.now();
        match change {
            Change::Watched { epoch, kind, news } if epoch == self.epoch => {
                self.model.take(kind, news);
                self.correct_misled();
                for (group, notes) in std::mem::take(&mut self.model.due) {
                    self.writer.begin_note(move |around| note::write(around, group, notes));
                }
            }
            Change::Shard { epoch, news } if epoch == self.epoch => self.take_shard(news),
            Change::Config { epoch, news } if epoch == self.epoch => self.take_config(news),
            Change::Asked(answer) => {
                let now = self.now();
                // Whoever asked may be gone.
                let _ = answer.send(JobOrder::of(&mut self.model.cluster, now, &self.policy));
            }
            Change::Written(outcome) => self.take_outcome(outcome),
            // Watches of a model that was thrown away.
            Change::Watched { .. } | Change::Shard { .. } | Change::Config { .. } => {}
        }
        let now_synced = self.is_synced() && !synced;
        if self.model.changed || now_synced {
            self.model.changed = false;
            self.open_window();
        }
        if now_synced {
            // All there is was gathered already.
            self.look_again(Duration::ZERO);
        }
    }

    fn take_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bound { key, result } => match result {
                Bound::There(request) => self.model.confirm(&key, Some(request)),
                Bound::Missing => self.model.confirm(&key, None),
                Bound::Placed(uid) => self.model.placed(&key, uid),
                Bound::Refused(veto) => {
                    self.model.confirm(&key, None);
                    self.model.veto(&key, veto);
                }
            },
            Outcome::Evicted { uid, stays } => {
                let Some(pod) = stays else {
                    self.model.evicting.remove(&uid);
                    return;
                };
                match self.model.stays(pod) {
                    Stays::Known => {}
                    Stays::Unsure(pod) => self.writer.begin(move |around| evict::look_again(around, pod)),
                }
            }
            Outcome::Noted { group, failed } => {
                for note in failed {
                    let deltas = self.model.converter.group_not_noted(&group, note);
                    self.model.feed(deltas);
                }
            }
            Outcome::Dropped { key, uid, gone } => {
                self.model.binds.dropping.remove(&uid);
                let same = self.model.binds.known.get(&key).is_some_and(|known| known.uid == uid);
                if gone && same {
                    let (namespace, name) = key.split_once('/').unwrap_or(("default", &key));
                    self.model.remove(kai_convert::Kind::BindRequest, namespace, name);
                }
            }
        }
    }

    fn take_shard(&mut self, news: News<Arc<SchedulingShard>>) {
        let shards = &mut self.found.shards;
        match news {
            News::Begin => shards.clear(),
            News::Listed(shard) | News::Applied(shard) => {
                shards.insert(shard.metadata.name.clone().unwrap_or_default(), Arc::unwrap_or_clone(shard));
            }
            News::Deleted(shard) => drop(shards.remove(shard.metadata.name.as_deref().unwrap_or_default())),
            News::Complete => self.shards_listed = true,
        }
        self.conclude();
    }

    fn take_config(&mut self, news: News<Arc<Config>>) {
        match news {
            News::Begin => self.found.config = None,
            News::Listed(config) | News::Applied(config) => {
                if config.metadata.name.as_deref() == Some(objects::CONFIG) {
                    self.found.config = Some(Arc::unwrap_or_clone(config));
                }
            }
            News::Deleted(config) => {
                if config.metadata.name.as_deref() == Some(objects::CONFIG) {
                    self.found.config = None;
                }
            }
            News::Complete => self.configs_listed = true,
        }
        self.conclude();
    }

    /// Draws the conclusions from what the Config and the shards say now.
    fn conclude(&mut self) {
        if !self.shards_listed || !self.configs_listed {
            return;
        }
        let setup::Conclusion { setup, policy, complaints } = self.found.conclude(&self.options, self.file.as_ref());
        if setup != self.setup {
            tracing::info!(?setup, "set up otherwise: beginning again");
            self.process.cancel.cancel();
            return;
        }
        let shard = self.found.shard(&self.options);
        if policy != self.policy {
            tracing::info!(shard = ?shard.and_then(|shard| shard.metadata.name.as_ref()), "policy changed");
            self.policy = policy;
            self.model.changed = true;
        }
        if let Some(shard) = shard {
            for complaint in complaints {
                self.process.events.tell(shard, kai_kit::events::Kind::Warning, "InvalidSetting", complaint);
            }
        }
    }

    /// Nothing of the model can be trusted: everything is listed again.
    pub(crate) fn begin_again(&mut self) {
        self.watching.cancel();
        self.epoch += 1;
        self.shards_listed = false;
        self.configs_listed = false;
        self.model.begin_again();
        self.window = None;
        self.next_time = None;
        self.watch();
    }

    /// Looks again after some time at the latest.
    pub(crate) fn look_again(&mut self, pause: Duration) {
        let at = Instant::now() + pause;
        self.next_time = Some(self.next_time.map_or(at, |known| known.min(at)));
    }

    /// The name of the node pool in conditions.
    pub(crate) fn pool(&self) -> Arc<str> {
        match self.options.partition_label_value.as_str() {
            "" => "default".into(),
            pool => pool.into(),
        }
    }
}
