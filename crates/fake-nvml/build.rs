//! Compiles the fake library as a shared object of its own, so that the program that carries it can write it to any folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=src/library.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let folder = PathBuf::from(required("OUT_DIR"));
    let library = folder.join("libnvidia-ml.so.1");
    if required("CARGO_CFG_TARGET_OS") == "linux" {
        compile(&library);
    } else {
        // Nobody looks for this library elsewhere; `write_to` says so.
        fs::write(&library, []).expect("the folder for build results can be written to");
    }
}

fn compile(library: &Path) {
    let mut rustc = Command::new(required("RUSTC"));
    rustc.args(["--crate-name", "nvidia_ml", "--crate-type", "cdylib", "--edition", "2024", "src/library.rs"]);
    rustc.args(["--target", &required("TARGET"), "--cap-lints", "warn"]);
    // A panic must never unwind into a program in C. `-crt-static` is the default but on musl, where it allows no libraries.
    rustc.args(["-C", "panic=abort", "-C", "debuginfo=0", "-C", "strip=symbols", "-C", "target-feature=-crt-static"]);
    rustc.args(["-C", "link-arg=-Wl,-soname,libnvidia-ml.so.1", "-C", "codegen-units=1"]);
    rustc.arg("-C").arg(format!("opt-level={}", required("OPT_LEVEL")));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let here = required("CARGO_MANIFEST_DIR");
    rustc.arg(format!("--remap-path-prefix={here}=fake-nvml")).arg("-o").arg(library);
    let status = rustc.status().expect("the compiler can be started");
    assert!(status.success(), "the fake NVML does not compile: {rustc:?}");
}

fn required(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
