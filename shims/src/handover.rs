//! Handing over to the full `substrate`, for whatever the quick check cannot decide or do.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use substrate_runtime::inherit::Successor;
use substrate_trace::SpanId;

use crate::installed::{Installed, SUBSTRATE, pointer};
use crate::start::c_string;
use crate::tool;

/// Everything that `substrate shim-exec` must not find out a second time.
#[derive(Debug)]
pub struct Handover<'a> {
    /// Where the shim is.
    pub installed: &'a Installed,
    /// The tool's file.
    pub target: &'a Path,
    /// The span.
    pub span: SpanId,
    /// What the tool gets as its arguments.
    pub argv: &'a [OsString],
}

/// The full `substrate`: where installation noted it, else wherever `PATH` has it.
pub fn substrate(
    installed: &Installed,
    search_path: Option<&OsStr>,
    cwd: &Path,
) -> Option<PathBuf> {
    let noted = pointer(&installed.directory(), SUBSTRATE).filter(|binary| is_executable(binary));
    noted.or_else(|| tool::find(OsStr::new("substrate"), search_path, cwd, installed.id, 0).ok())
}

fn is_executable(path: &Path) -> bool {
    path.is_absolute()
        && fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Becomes the full `substrate`. Returns only to say why that failed.
pub fn hand_over(binary: &Path, order: &Handover<'_>, env: &[CString]) -> io::Error {
    let span = order.span.to_string();
    let words: [&OsStr; 9] = [
        OsStr::new("substrate"),
        OsStr::new("shim-exec"),
        OsStr::new("--home"),
        order.installed.home.as_os_str(),
        OsStr::new("--target"),
        order.target.as_os_str(),
        OsStr::new("--span"),
        OsStr::new(&span),
        OsStr::new("--"),
    ];
    let given = order.argv.iter().map(OsString::as_os_str);
    let argv: io::Result<Vec<CString>> = words.into_iter().chain(given).map(c_string).collect();
    match (argv, c_string(binary.as_os_str())) {
        (Ok(argv), Ok(binary)) => Successor::new(&binary, &argv, env).take_over(),
        (Err(error), _) | (_, Err(error)) => error,
    }
}
