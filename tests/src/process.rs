//! Child processes that never outlive the test that started them.
//!
//! Each child has a process group of its own, writes to a log file, and is ended by its id when its [`Process`] is dropped, also
//! when a test panics. Should the test process itself be killed, the kernel ends the child (`setpriv --pdeathsig`, Linux) or a
//! shell that watches the parent does (elsewhere). The kernel's signal fires when the *thread* that started the child ends, so
//! one thread that lives as long as the process starts them all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::programs::on_path;

/// Waits for the program, ends it when the parent is gone, and passes the request to end on.
const WATCHDOG: &str = r#"parent=$PPID; "$@" & child=$!
trap 'kill "$child" 2>/dev/null' TERM INT
(while kill -0 "$parent" 2>/dev/null; do sleep 1; done; kill -9 "$child") & wait "$child""#;

/// Removes a folder once the test process is gone, and the control groups of containers that ran in it.
const JANITOR: &str = r#"parent=$1; folder=$2
while kill -0 "$parent" 2>/dev/null; do sleep 0.5; done
for task in "$folder"/containerd/state/io.containerd.runtime.v2.task/k8s.io/*; do
  group=k8s.io/${task##*/}
  for path in /sys/fs/cgroup/"$group" /sys/fs/cgroup/*/"$group"; do
    tries=0
    while [ -d "$path" ] && [ $tries -lt 20 ]; do
      rmdir "$path" || sleep 0.25
      tries=$((tries + 1))
    done
  done
done
[ ! -d "$folder/containerd" ] || rmdir /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io
rm -rf -- "$folder""#;

static STARTER: LazyLock<mpsc::Sender<Start>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel::<Start>();
    thread::Builder::new()
        .name("process-starter".into())
        .spawn(move || {
            for mut start in receiver {
                // The asker waits for the answer, so a failed send means that it is gone; then so is the need.
                drop(start.answer.send(start.command.spawn()));
            }
        })
        .expect("the operating system starts one more thread");
    sender
});

struct Start {
    command: Command,
    answer: mpsc::Sender<std::io::Result<Child>>,
}

/// A running child process; dropping it ends the process.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `program` with `arguments`, its output going to `<folder>/<name>.log`.
    pub fn start(name: &str, program: &Path, arguments: &[OsString], folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("create `{}`", log.display()))?;
        let (guard, flags): (PathBuf, &[&str]) = match on_path("setpriv") {
            Some(setpriv) => (setpriv, &["--pdeathsig", "KILL", "--"]),
            None => ("sh".into(), &["-c", WATCHDOG, "sh"]),
        };
        let mut command = Command::new(guard);
        command.args(flags).arg(program).args(arguments).current_dir(folder).process_group(0).stdin(Stdio::null());
        command.stdout(output.try_clone().context("share the log between stdout and stderr")?).stderr(output);
        let (answer, child) = mpsc::channel();
        STARTER.send(Start { command, answer }).map_err(|_| anyhow!("the thread that starts processes is gone"))?;
        let child = child.recv().context("ask for a new process")?.with_context(|| format!("start `{name}`"))?;
        Ok(Self { name: name.into(), log, child })
    }

    /// The id by which the process is known and ended.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the process ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Fails with the end of the log if the process is no longer running.
    pub fn check(&mut self) -> Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => Err(anyhow!("`{}` ended with {status}\n{}", self.name, self.log_tail(20))),
        }
    }

    /// The last lines of the process's log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }

    /// Asks the process to end, waits for at most `patience`, then ends it by force.
    pub fn stop(&mut self, patience: Duration) {
        if self.ended().is_some() {
            return;
        }
        let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        if !patience.is_zero() {
            let _ = kill_process_group(group, Signal::TERM);
            let deadline = Instant::now() + patience;
            while self.ended().is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
            }
        }
        if self.ended().is_none() {
            let _ = kill_process_group(group, Signal::KILL);
            drop(self.child.wait());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// A temporary folder that is removed when dropped, and also when this process is killed before it can.
#[derive(Debug)]
pub struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    /// Makes a folder whose name begins with `kai-` and `purpose`.
    pub fn create(purpose: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("kai-{purpose}-")).tempdir().context("make a folder")?;
        let mut janitor = Command::new("sh");
        janitor.args(["-c", JANITOR, "sh", &std::process::id().to_string()]).arg(folder.path());
        janitor.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        janitor.spawn().context("start the shell that cleans up after a killed test")?;
        Ok(Self { folder })
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file that only the owner may read, and gives its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.path().join(name);
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(content.as_ref()).with_context(|| format!("write `{}`", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_alive(id: u32) -> bool {
        i32::try_from(id).ok().and_then(Pid::from_raw).is_some_and(|id| rustix::process::test_kill_process(id).is_ok())
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let folder = Folder::create("process-test").unwrap();
        let process = Process::start("sleeper", Path::new("sleep"), &["600".into()], folder.path()).unwrap();
        let id = process.id();
        assert!(is_alive(id));
        drop(process);
        assert!(!is_alive(id));
    }

    #[test]
    fn a_process_that_ends_early_is_reported_with_its_last_words() {
        let folder = Folder::create("process-test").unwrap();
        let arguments = ["-c".into(), "echo out of fish; exit 3".into()];
        let mut process = Process::start("cat", Path::new("sh"), &arguments, folder.path()).unwrap();
        process.child.wait().unwrap();
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("out of fish"), "{error}");
    }
}
