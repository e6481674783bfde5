//! Builds the shim with a cargo of its own and embeds it, so that one command builds everything.
//! The shim is static: for musl where that target is installed, else for the host.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that the shim links, below the top of the workspace.
const LINKED: [&str; 9] = [
    "shims",
    "crates/broker",
    "crates/command",
    "crates/compiled",
    "crates/policy",
    "crates/runtime",
    "crates/sys",
    "crates/text",
    "crates/trace",
];

/// What the compiler calls its own symbols that end a program after a bug or without memory.
const ENDS: [&str; 2] = [
    "_7___rustc17rust_begin_unwind",
    "_7___rustc26___rust_alloc_error_handler",
];

/// What the compiler's own code would ask of an unwinder. With these the whole of one would be linked,
/// and the C library's formatted output after it.
const UNWINDER: [&str; 9] = [
    "Resume",
    "GetDataRelBase",
    "GetIP",
    "GetIPInfo",
    "GetLanguageSpecificData",
    "GetRegionStart",
    "GetTextRelBase",
    "SetGR",
    "SetIP",
];

fn main() -> Result<(), Box<dyn Error>> {
    let top = Path::new(&variable("CARGO_MANIFEST_DIR")?)
        .join("../..")
        .canonicalize()?;
    for linked in LINKED {
        for part in ["src", "Cargo.toml"] {
            println!(
                "cargo::rerun-if-changed={}",
                top.join(linked).join(part).display()
            );
        }
    }
    for file in [
        "shims/link.ld",
        "Cargo.lock",
        "Cargo.toml",
        "crates/cli/build.rs",
    ] {
        println!("cargo::rerun-if-changed={}", top.join(file).display());
    }

    let (host, arch) = (variable("TARGET")?, variable("CARGO_CFG_TARGET_ARCH")?);
    let musl = format!("{arch}-unknown-linux-musl");
    let sysroot = PathBuf::from(output(rustc().args(["--print", "sysroot"]))?).join("lib/rustlib");
    // rustup lists there what it has installed: a target that comes later is used from then on.
    let installed = sysroot.join("components");
    if installed.exists() {
        println!("cargo::rerun-if-changed={}", installed.display());
    }
    let libraries = sysroot.join(&musl).join("lib");
    let (target, flags) = if libraries.is_dir() {
        let linker = sysroot.join(variable("HOST")?).join("bin/gcc-ld");
        (
            musl,
            small(&libraries, &linker, &top.join("shims/link.ld"))?,
        )
    } else {
        (host, vec!["-Ctarget-feature=+crt-static".to_owned()])
    };
    let built = build(&top, &target, &flags)?;
    println!("cargo::rustc-env=SUBSTRATE_SHIM={}", built.display());
    println!("cargo::rustc-env=SUBSTRATE_SHIM_TARGET={target}");
    Ok(())
}

/// Flags for a small binary at a fixed address. Panics, and the unwinding that never happens, end in
/// `substrate_fault`: the standard message would bring a reader of debug information with it, which
/// is larger than everything else together.
fn small(libraries: &Path, linker: &Path, script: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut flags = vec![
        "-Crelocation-model=static".to_owned(),
        "-Cforce-unwind-tables=no".to_owned(),
    ];
    // The linker that comes with the compiler folds functions that are the same, and optimises our
    // crates as one. The compiler's own way to do that would take the standard library with it, and
    // then there is no seam left to cut at.
    if linker.is_dir() {
        flags.push("-Clinker-plugin-lto".to_owned());
        flags.push(format!("-Clink-arg=-B{}", linker.display()));
        flags.push("-Clink-arg=-fuse-ld=lld".to_owned());
        flags.push("-Clink-arg=-Wl,--icf=all".to_owned());
        // Two parts to be mapped instead of four: every one costs time at each start.
        flags.push("-Clink-arg=-Wl,--no-rosegment".to_owned());
    }
    let mut link = |argument: String| flags.push(format!("-Clink-arg=-Wl,{argument}"));
    // The script puts pages side by side that would otherwise be told apart.
    link("-z,norelro".to_owned());
    link("--no-eh-frame-hdr".to_owned());
    link(format!("-T,{}", script.display()));
    for call in UNWINDER {
        link(format!("--defsym=_Unwind_{call}=substrate_fault"));
    }
    for end in ENDS {
        for symbol in symbols(libraries, end)? {
            link(format!("--wrap={symbol}"));
            link(format!("--defsym=__wrap_{symbol}=substrate_fault"));
        }
    }
    Ok(flags)
}

/// The full names of a symbol of the compiler's own; they carry a hash of the compiler's version.
fn symbols(libraries: &Path, end: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(libraries)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.ends_with(".rlib")
            || !(name.starts_with("libcore-") || name.starts_with("libstd-"))
        {
            continue;
        }
        let bytes = fs::read(&path)?;
        for (at, _) in bytes
            .windows(end.len())
            .enumerate()
            .filter(|(_, part)| *part == end.as_bytes())
        {
            let hash = bytes[..at]
                .iter()
                .rev()
                .take_while(|byte| byte.is_ascii_alphanumeric())
                .count();
            let start = bytes[..at].len() - hash;
            let symbol = [b"_", &bytes[start..at], end.as_bytes()].concat();
            let symbol = String::from_utf8(symbol)?;
            if symbol.starts_with("_RNvCs") && !found.contains(&symbol) {
                found.push(symbol);
            }
        }
    }
    Ok(found)
}

fn build(top: &Path, target: &str, flags: &[String]) -> Result<PathBuf, Box<dyn Error>> {
    let out = PathBuf::from(variable("OUT_DIR")?).join("shim");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .current_dir(top)
        .args([
            "build",
            "--quiet",
            "--package",
            "substrate-shim",
            "--bin",
            "substrate-shim",
        ])
        .args(["--profile", "shim", "--target", target, "--target-dir"])
        .arg(&out)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    // What surrounds this build, clippy or a coverage run, is not meant for the shim.
    for name in [
        "RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("the shim for {target} could not be built").into());
    }
    Ok(out.join(target).join("shim/substrate-shim"))
}

fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")))
}

fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|error| format!("{name}: {error}").into())
}
