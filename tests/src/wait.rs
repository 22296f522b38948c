//! Waiting for a state, never for a while: each wait says what it waits for, and what it last saw when it gives up.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context as _, Result, bail};
use kube::{
    Api, Resource,
    runtime::wait::{Condition, await_condition},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep, timeout};

const PAUSE: Duration = Duration::from_millis(50);

/// Asks again and again until there is an answer; an error from `ask` ends the wait at once.
pub async fn until<T>(what: &str, patience: Duration, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask().await.with_context(|| format!("wait for {what}"))? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("waited {}s for {what}", patience.as_secs());
        }
        sleep(PAUSE).await;
    }
}

/// Watches one object until `condition` holds and gives the object; on giving up the error has the object as it is.
pub async fn for_object<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    patience: Duration,
    condition: impl Condition<K>,
) -> Result<Option<K>>
where
    K: Resource + Clone + Debug + Send + Sync + Serialize + DeserializeOwned + 'static,
{
    if let Ok(object) = timeout(patience, await_condition(api.clone(), name, condition)).await {
        return object.with_context(|| format!("wait for `{name}` to be {what}"));
    }
    let last = match api.get_opt(name).await {
        Ok(Some(object)) => serde_json::to_string_pretty(&object)?,
        Ok(None) => "it does not exist".into(),
        Err(error) => error.to_string(),
    };
    bail!("waited {}s for `{name}` to be {what}; last seen: {last}", patience.as_secs())
}

/// Waits until the object of this name is gone.
pub async fn for_absence<K>(api: &Api<K>, name: &str, patience: Duration) -> Result<()>
where
    K: Resource + Clone + Debug + Send + Sync + Serialize + DeserializeOwned + 'static,
{
    for_object(api, name, "gone", patience, |object: Option<&K>| object.is_none()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn giving_up_says_what_was_waited_for() {
        let error = until::<()>("the moon", Duration::from_secs(3), async || Ok(None)).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 3s for the moon");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_ends_the_wait_at_once() {
        let start = Instant::now();
        let error = until::<()>("the moon", Duration::from_secs(3), async || bail!("no sky")).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "wait for the moon: no sky");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
