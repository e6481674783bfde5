//! A project as it was, at its own path, seen by this process and its worlds alone.

use std::ffi::CString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use substrate_changes::gc;
use substrate_changes::owner::Owner;
use substrate_sys::mount::{self, NODEV, NOSUID, NewFilesystem};
use substrate_sys::{at, namespace};

/// Whether this process has mounts of its own already.
static OWN: Mutex<bool> = Mutex::new(false);

/// Gives this process mounts of its own, once.
pub(crate) fn own_mounts() -> io::Result<()> {
    let mut own = OWN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*own {
        namespace::own_mounts()?;
        *own = true;
    }
    Ok(())
}

/// An overlay on a project: what is written to it stays here, and goes with it.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The project.
    pub root: PathBuf,
    dir: PathBuf,
    /// The project below everything that was put on it.
    bare: OwnedFd,
    /// What lies on it, the oldest first.
    layers: Vec<PathBuf>,
    mounted: u32,
}

impl Stage {
    /// Covers a project. From here on this process has mounts of its own.
    pub fn cover(home: &Path, root: &Path) -> io::Result<Self> {
        own_mounts()?;
        let name = Owner::current().mark(&substrate_trace::SpanId::new().to_string());
        let mut stage = Self {
            root: root.to_owned(),
            dir: home.join(gc::STAGES).join(name),
            bare: at::open_dir_path(root)?,
            layers: Vec::new(),
            mounted: 0,
        };
        stage.mount()?;
        Ok(stage)
    }

    /// Puts on the project what a world wrote over it, and goes on from there.
    pub fn push(&mut self, upper: &Path) -> io::Result<()> {
        self.layers.push(upper.to_owned());
        self.mount()
    }

    /// One overlay over all layers, whatever was mounted before: they cannot be stacked.
    fn mount(&mut self) -> io::Result<()> {
        let private = |dir: &Path| DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let own = self.dir.join(self.mounted.to_string());
        let (upper, work) = (own.join("upper"), own.join("work"));
        private(&upper)?;
        private(&work)?;
        // The upper directory's own mode is what the root shows.
        let mode = fs::metadata(&self.root)?.permissions().mode();
        fs::set_permissions(&upper, Permissions::from_mode(mode))?;
        let overlay = NewFilesystem::open(c"overlay")?;
        let bare = format!("/proc/self/fd/{}", self.bare.as_raw_fd());
        match self.layers.is_empty() {
            true => overlay.set(c"lowerdir", Some(&CString::new(bare)?))?,
            false => {
                for layer in self.layers.iter().rev() {
                    overlay.set(c"lowerdir+", Some(&plain(layer)?))?;
                }
                overlay.set(c"lowerdir+", Some(&CString::new(bare)?))?;
            }
        }
        overlay.set(c"upperdir", Some(&plain(&upper)?))?;
        overlay.set(c"workdir", Some(&plain(&work)?))?;
        overlay.set(c"userxattr", None)?;
        let tree = overlay.mount(NODEV | NOSUID)?;
        mount::check_writable(tree.as_fd())?;
        mount::attach(tree.as_fd(), &plain(&self.root)?)?;
        self.layers.push(upper);
        self.mounted += 1;
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for number in (0..self.mounted).rev() {
            if let Ok(root) = plain(&self.root) {
                let _ = mount::detach(&root);
            }
            // The kernel's own directory in there cannot be entered by its owner.
            let own = self.dir.join(number.to_string()).join("work/work");
            let _ = fs::set_permissions(&own, Permissions::from_mode(0o700));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn plain(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
