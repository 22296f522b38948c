//! Ways to the API server.

use std::path::Path;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be used.
    #[error("kubeconfig: {0}")]
    File(#[from] kube::config::KubeconfigError),
    /// Neither a file nor a service account.
    #[error("no way to a cluster: {0}\nhint: set KUBECONFIG or --kubeconfig, or run inside a cluster")]
    Infer(#[from] kube::config::InferConfigError),
    /// The client cannot be made.
    #[error("client: {0}")]
    Client(#[from] kube::Error),
}

/// A client from a kubeconfig file, or else from the environment: `KUBECONFIG`, `~/.kube/config`, a service account.
///
/// It does not repeat requests by itself: whoever asks decides what to do about an error.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

/// Where the API server is that [`connect`] leads to.
pub async fn server(kubeconfig: Option<&Path>) -> Result<http::Uri, Error> {
    Ok(config(kubeconfig).await?.cluster_url)
}

/// What [`connect`] makes a client from.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    config.default_retry = false;
    Ok(config)
}
