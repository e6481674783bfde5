//! The grammar is C that is safe only with a header of ours before it, which the configuration of this
//! repository puts there. Cargo reads that from the directory it is called in.

use std::env;

const HEADER: &str = "substrate_ascii.h";

fn main() {
    println!("cargo::rerun-if-changed=include/{HEADER}");
    if env::var_os("CARGO_FEATURE_PARSE").is_none() {
        return;
    }
    let target = env::var("TARGET").unwrap_or_default();
    let flags = format!("CFLAGS_{}", target.replace('-', "_"));
    println!("cargo::rerun-if-env-changed={flags}");
    if !env::var(&flags).is_ok_and(|flags| flags.contains(HEADER)) {
        println!(
            "cargo::error=the grammar needs {HEADER} before it, and {flags} does not name it: call cargo \
             inside the repository, whose .cargo/config.toml does, or add the target {target} there"
        );
    }
}
