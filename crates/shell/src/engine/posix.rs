//! The control text for a shell that is not bash: lines, status, nothing more.

use super::quote;

/// The only descriptor a small shell can name besides the standard ones is a single digit.
pub const TERMINAL: i32 = 9;

/// What such a shell runs first.
pub const SETUP: &str = "__substrate_t() { return \"$1\"; }; PS1= PS2= __substrate_s=0\n";

/// Asks for a report.
pub const REPORT: &str = "printf '\\0R\\0%s\\0002\\0\\0\\0\\0\\0\\0\\0\\0%s\\0%s\\0\\0> \\0\\0' \"${__substrate_s:=$?}\" \"$PATH\" \"${HOME+=}${HOME-}\" >&0\n";

/// Runs a line after waiting for the terminal.
///
/// Such a shell forgets what it has read ahead when it is interrupted, so the report is asked for
/// only once the line runs.
pub fn line(text: &[u8], status: i32, prefix: &[u8]) -> Vec<u8> {
    let mut control = prefix.to_vec();
    control.extend_from_slice(b"\n__substrate_l=");
    control.extend_from_slice(&quote::single(text));
    control.extend_from_slice(b"; __substrate_s=; printf 'B\\0' >&0; read -r __substrate_x; ");
    // Where the status comes from must not itself end a shell under `set -e`.
    let joint = if status == 0 { "&&" } else { "||" };
    control.extend_from_slice(
        format!("__substrate_t {status} {joint} eval \"$__substrate_l\" <&9 9>&-\n").as_bytes(),
    );
    control
}

/// The start-up files of a login shell.
pub const PROFILE: &str = "if [ -r /etc/profile ]; then . /etc/profile; fi; \
    if [ -r ~/.profile ]; then . ~/.profile; fi";
