//! Where the programs of a real cluster are: etcd, kube-apiserver, kube-controller-manager, kubelet and kubectl.
//!
//! They come from the folder `KUBEBUILDER_ASSETS` if it has them all, else from the cache that `cargo xtask real build` fills.
//! The versions in the cache's name are read from the Go modules that build them, so the two cannot disagree.
//!
//! `xtask` compiles this file too: who fills the cache and who reads it agree.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

const KUBERNETES_MODULE: &str = include_str!("../real/kubernetes/go.mod");
const ETCD_MODULE: &str = include_str!("../real/etcd/go.mod");

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
        let folder = built_folder()?;
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

/// The folder that `cargo xtask real build` puts the programs in: one for each pair of versions.
pub fn built_folder() -> Result<PathBuf> {
    let name = format!("kubernetes-{}-etcd-{}", kubernetes_version()?, etcd_version()?);
    Ok(cache_folder()?.join(name).join("bin"))
}

/// The version of Kubernetes that the real clusters run, such as `1.34.4`.
pub fn kubernetes_version() -> Result<&'static str> {
    required(KUBERNETES_MODULE, "k8s.io/kubernetes v").context("tests/real/kubernetes/go.mod names no version")
}

/// The version of etcd that the real clusters run, such as `3.6.16`.
pub fn etcd_version() -> Result<&'static str> {
    required(ETCD_MODULE, "go.etcd.io/etcd/server/v3 v").context("tests/real/etcd/go.mod names no version")
}

fn required(module: &'static str, prefix: &str) -> Option<&'static str> {
    let mut versions =
        module.lines().filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(prefix));
    versions.find_map(|rest| rest.split_whitespace().next())
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
    fn the_versions_are_read_from_the_go_modules() {
        for version in [kubernetes_version().unwrap(), etcd_version().unwrap()] {
            let parts: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
            assert_eq!(parts.len(), 3, "{version}");
        }
    }
}
