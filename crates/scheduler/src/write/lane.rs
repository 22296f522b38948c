//! Work that waits for its turn, and the little that is under way.
//!
//! What waits is only what it needs to know; the much larger state of a request exists while the request does. Thousands may wait
//! after one cycle.

use std::{collections::VecDeque, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// How often it is seen whether work still waits, and how many times at most.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 20;

/// Work to be done.
pub(super) type Work = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Work begun in the order in which it was asked for, some at the same time. All ends when this is dropped.
pub(super) struct Lane {
    most: usize,
    queue: Arc<Mutex<Queue>>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// Tasks that do work, one piece after the other.
    hands: usize,
}

impl Lane {
    /// A lane with so much work at the same time, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), queue: Arc::default(), tasks: JoinSet::new() }
    }

    /// Whether somebody waits for a turn.
    pub(super) fn is_behind(&self) -> bool {
        !self.queue.lock().waiting.is_empty()
    }

    /// Those who wait for their turn.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting(Arc::clone(&self.queue))
    }

    /// Does work as soon as it is its turn.
    pub(super) fn begin(&mut self, work: Work) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(work);
        if queue.hands == self.most {
            return;
        }
        queue.hands += 1;
        drop(queue);
        while self.tasks.try_join_next().is_some() {}
        let queue = Arc::clone(&self.queue);
        self.tasks.spawn(async move {
            while let Some(work) = next(&queue) {
                // Who panics takes nobody along.
                let _ = AssertUnwindSafe(async { work().await }).catch_unwind().await;
            }
        });
    }
}

/// The next piece of work. Without one a task is over, from the very moment at which none was there.
fn next(queue: &Mutex<Queue>) -> Option<Work> {
    let mut queue = queue.lock();
    let work = queue.waiting.pop_front();
    if work.is_none() {
        queue.hands -= 1;
    }
    work
}

/// Those who wait in a lane.
pub(super) struct Waiting(Arc<Mutex<Queue>>);

impl Waiting {
    /// Returns when nobody waits any more, but does not wait for ever.
    pub(super) async fn until_over(&self) {
        for _ in 0..LOOKS {
            if self.0.lock().waiting.is_empty() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// Says its number when it begins, and takes a second.
    fn work(number: u32, tell: &UnboundedSender<u32>) -> Work {
        let tell = tell.clone();
        Box::new(move || {
            async move {
                tell.send(number).expect("somebody listens");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            .boxed()
        })
    }

    fn heard(hear: &mut UnboundedReceiver<u32>) -> Vec<u32> {
        std::iter::from_fn(|| hear.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_in_order_and_so_much_at_once_as_is_allowed() {
        let (tell, mut hear) = unbounded_channel();
        let mut lane = Lane::new(2);
        (0..5).for_each(|number| lane.begin(work(number, &tell)));
        for expected in [vec![0, 1], vec![2, 3], vec![4], vec![]] {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(heard(&mut hear), expected);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        lane.begin(work(5, &tell));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(heard(&mut hear), [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_way_to_a_lane_does_so_until_nobody_waits_in_it_or_for_two_seconds() {
        let (tell, _hear) = unbounded_channel();
        let mut lane = Lane::new(2);
        let begin = tokio::time::Instant::now();
        lane.waiting().until_over().await;
        assert_eq!(begin.elapsed().as_millis(), 0);
        for (pieces, passed) in [(3, 1000..=1100), (200, 2000..=2000)] {
            (0..pieces).for_each(|number| lane.begin(work(number, &tell)));
            let begin = tokio::time::Instant::now();
            lane.waiting().until_over().await;
            assert!(passed.contains(&begin.elapsed().as_millis()), "{pieces} pieces: {:?}", begin.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_stops_nobody_else() {
        let (tell, mut hear) = unbounded_channel();
        let mut lane = Lane::new(1);
        lane.begin(Box::new(|| async { panic!("on purpose") }.boxed()));
        lane.begin(Box::new(|| panic!("before it began")));
        lane.begin(work(1, &tell));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(heard(&mut hear), [1]);
    }
}
