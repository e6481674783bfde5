//! What `scripts/package` makes, installed into a clean root, used, upgraded and removed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Sandbox, skip};

fn out(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

fn packages(sandbox: &Sandbox) -> Vec<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/package");
    let mut command = Command::new(script);
    sandbox.prepare(&mut command);
    let output = command
        .args(["--binary", env!("CARGO_BIN_EXE_substrate"), "--out"])
        .arg(sandbox.project().join("packages"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", out(&output));
    let paths = String::from_utf8(output.stdout).unwrap();
    paths.lines().map(PathBuf::from).collect()
}

/// Uses what lies below a prefix.
fn works(sandbox: &Sandbox, prefix: &Path) {
    let mut command = Command::new(prefix.join("bin/substrate"));
    sandbox.prepare(&mut command);
    let output = command.args(["-c", "echo installed"]).output().unwrap();
    assert_eq!(out(&output), "installed\n");
    let share = prefix.join("share");
    for page in [
        "substrate",
        "substrate-run",
        "substrate-policy-explain",
        "substrate-world-apply",
    ] {
        let page = share.join(format!("man/man1/{page}.1.gz"));
        let text = Command::new("gzip").arg("-dc").arg(&page).output().unwrap();
        assert!(out(&text).contains(".SH NAME"), "{}", page.display());
    }
    let completions = share.join("bash-completion/completions/substrate");
    let line = format!(". {}; complete -p substrate", completions.display());
    let found = Command::new("bash")
        .args(["--norc", "-c", &line])
        .output()
        .unwrap();
    assert!(out(&found).contains("-F _substrate"), "{}", out(&found));
    assert!(share.join("doc/substrate/copyright").exists());
}

/// The tarball works below any prefix.
fn unpacked_anywhere(sandbox: &Sandbox, made: &[PathBuf]) {
    let tarball = made
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "gz"));
    let prefix = sandbox.project().join("prefix");
    std::fs::create_dir(&prefix).unwrap();
    let unpacked = Command::new("tar")
        .args(["--strip-components=1", "-C"])
        .arg(&prefix)
        .arg("-xf")
        .arg(tarball.unwrap())
        .status();
    assert!(unpacked.unwrap().success());
    works(sandbox, &prefix);
}

#[test]
fn packages_are_installed_used_upgraded_and_removed() {
    let test = "packages_are_installed_used_upgraded_and_removed";
    let sandbox = Sandbox::new();
    let made = packages(&sandbox);
    unpacked_anywhere(&sandbox, &made);
    let Some(package) = made
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
    else {
        return skip(test, "there is no dpkg-deb");
    };
    let root = sandbox.project().join("root");
    for directory in [
        "etc",
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/log",
    ] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let shells = root.join("etc/shells");
    std::fs::write(&shells, "/bin/sh\n/bin/bash\n").unwrap();
    std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&std::ffi::OsStr]| -> Output {
        let mut command = Command::new("dpkg");
        sandbox.prepare(&mut command);
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(format!("--root={}", root.display()))
            .args([
                "--force-script-chrootless",
                "--force-not-root",
                "--force-bad-path",
            ])
            .args(arguments)
            .output()
            .unwrap()
    };
    if substrate_sys::identity::user_id() != 0 {
        return skip(test, "only root owns what dpkg installs");
    }
    for _ in 0..2 {
        let installed = dpkg(&["-i".as_ref(), package.as_os_str()]);
        assert!(installed.status.success(), "{}", out(&installed));
        works(&sandbox, &root.join("usr"));
        let known = std::fs::read_to_string(&shells).unwrap();
        assert_eq!(known, "/bin/sh\n/bin/bash\n/usr/bin/substrate\n");
    }
    // Nobody is locked out.
    let passwd = root.join("etc/passwd");
    std::fs::write(&passwd, "u:x:1000:1000::/home/u:/usr/bin/substrate\n").unwrap();
    let kept = dpkg(&["-r".as_ref(), "substrate".as_ref()]);
    assert!(
        !kept.status.success() && out(&kept).contains("login shell of: u"),
        "{}",
        out(&kept)
    );
    assert!(root.join("usr/bin/substrate").exists());
    std::fs::write(&passwd, "u:x:1000:1000::/home/u:/bin/bash\n").unwrap();
    let removed = dpkg(&["-r".as_ref(), "substrate".as_ref()]);
    assert!(removed.status.success(), "{}", out(&removed));
    assert!(!root.join("usr/bin/substrate").exists());
    assert_eq!(
        std::fs::read_to_string(&shells).unwrap(),
        "/bin/sh\n/bin/bash\n"
    );
}
