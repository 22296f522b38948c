//! The kubeconfig that `kai up` writes and takes away again.
//!
//! A file that is not ours is never touched: the default `~/.kube/config` may hold the keys of somebody's production cluster.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

const MARK: &str = "# written by `kai up`; removed when it stops\n";

/// A kubeconfig on disk, removed when dropped.
#[derive(Debug)]
pub struct KubeconfigFile {
    path: PathBuf,
    text: String,
}

impl KubeconfigFile {
    /// Writes a kubeconfig for `server`, readable by its owner only.
    pub fn write(path: &Path, server: &str) -> anyhow::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() && !text.starts_with(MARK) => anyhow::bail!(
                "`{}` exists and was not written by `kai up`\nhint: name another file with --kubeconfig",
                path.display()
            ),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read `{}`", path.display())),
        }
        let text = format!(
            "{MARK}apiVersion: v1\nkind: Config\ncurrent-context: kai\nclusters:\n- name: kai\n  cluster:\n    server: {server}\n\
             contexts:\n- name: kai\n  context:\n    cluster: kai\n    user: kai\nusers:\n- name: kai\n  user: {{}}\n"
        );
        // A new file moved into place: a reader sees the old one or the new one, never half of one.
        let temporary = path.with_extension(format!("tmp{}", std::process::id()));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .with_context(|| format!("write `{}`", path.display()))?;
        file.write_all(text.as_bytes()).with_context(|| format!("write `{}`", path.display()))?;
        fs::rename(&temporary, path).with_context(|| format!("write `{}`", path.display()))?;
        Ok(Self { path: path.to_owned(), text })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        // Another `kai up` may have taken the file over by now.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_kubeconfig_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("kai-kubeconfig-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config");
        fs::write(&path, "apiVersion: v1\n").unwrap();
        let error = KubeconfigFile::write(&path, "http://127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("was not written by `kai up`"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\n");

        fs::remove_file(&path).unwrap();
        let written = KubeconfigFile::write(&path, "http://127.0.0.1:1").unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("server: http://127.0.0.1:1"));
        drop(written);
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
