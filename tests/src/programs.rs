//! Where the programs of a real cluster are: etcd, kube-apiserver, kube-controller-manager, kubelet and kubectl.
//!
//! They come from the folder `KUBEBUILDER_ASSETS` if it has them all, else from the cache that `cargo xtask real build` fills.
//! The version in the cache's name is read from the Go module that builds them, so the two cannot disagree.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

const KUBERNETES_MODULE: &str = include_str!("../real/kubernetes/go.mod");

/// The programs a real cluster is made of.
pub const NAMES: [&str; 5] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubelet", "kubectl"];

/// A folder that has every program of [`NAMES`].
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Finds the programs, or says which are missing and how to get them.
    pub fn find() -> Result<Self> {
        if let Some(folder) = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from)
            && missing(&folder).is_empty()
        {
            return Ok(Self { folder });
        }
        let folder = cache_folder()?.join(format!("kubernetes-{}", kubernetes_version()?)).join("bin");
        let missing = missing(&folder);
        if missing.is_empty() {
            return Ok(Self { folder });
        }
        bail!("`{}` lacks {}\nhint: run `cargo xtask real build`", folder.display(), missing.join(", "))
    }

    /// The path of one program of [`NAMES`].
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The version of Kubernetes that the real clusters run, such as `1.34.4`.
pub fn kubernetes_version() -> Result<&'static str> {
    KUBERNETES_MODULE
        .lines()
        .filter_map(|line| line.trim_start_matches("require ").trim().strip_prefix("k8s.io/kubernetes v"))
        .map(|version| version.split_whitespace().next().unwrap_or(version))
        .next()
        .context("tests/real/kubernetes/go.mod does not require k8s.io/kubernetes")
}

/// Where this project keeps what outlives a clone: `$KAI_CACHE`, else `$XDG_CACHE_HOME/kai`, else `~/.cache/kai`.
pub fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("KAI_CACHE") {
        return Ok(PathBuf::from(folder));
    }
    if let Some(folder) = env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(folder).join("kai"));
    }
    let home = env::var_os("HOME").context("none of KAI_CACHE, XDG_CACHE_HOME and HOME is set")?;
    Ok(PathBuf::from(home).join(".cache").join("kai"))
}

/// The path of a program that the machine itself brings, such as `containerd`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(system).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn missing(folder: &Path) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| !folder.join(name).is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_go_module() {
        let version = kubernetes_version().unwrap();
        assert!(version.starts_with("1.") && version.split('.').count() == 3, "{version}");
    }
}
