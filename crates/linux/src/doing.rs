//! What the steps of a world do, for messages and for whoever decides what a failed one means.

use std::fmt;
use std::path::PathBuf;

/// What a step does. Its words follow `cannot`, and the path of the label follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Wait for the id maps.
    AwaitMaps,
    /// Write the id map.
    WriteMap,
    /// Set the host name.
    SetHostName,
    /// Enter the control group.
    EnterGroup,
    /// Close further user namespaces.
    CloseUserNamespaces,
    /// Prepare the network.
    PrepareNetwork,
    /// Bring up the loopback interface.
    LoopbackUp,
    /// Take from the host.
    TakeFromHost,
    /// Take the copy.
    TakeCopy,
    /// Take the stream.
    TakeStream,
    /// Take the device.
    TakeDevice,
    /// Hand out the stream.
    HandOut,
    /// Cut the mounts off.
    CutOff,
    /// Build a new root.
    NewRoot,
    /// Make the tree read-only.
    MakeTreeReadOnly,
    /// Mount.
    Mount,
    /// Make read-only.
    MakeReadOnly,
    /// Make.
    Make,
    /// Put in.
    PutIn,
    /// Link.
    Link,
    /// Cover.
    Cover,
    /// Mount the kernel's view at.
    MountKernelView,
    /// Remove.
    Remove,
    /// Go to.
    GoTo,
    /// Hide.
    Hide,
    /// Protect.
    Protect,
    /// Fix in place.
    Fix,
    /// Limit processes.
    LimitProcesses,
    /// Hide the first process.
    HideFirstProcess,
    /// Ask for the world's sockets.
    AskSockets,
    /// Give up new privileges.
    NoNewPrivileges,
    /// Restrict by Landlock.
    RestrictByLandlock,
    /// Give up capabilities.
    DropCapabilities,
    /// Install the system call filter.
    InstallFilter,
    /// Open a layer for the overlay on.
    OpenLayer,
    /// Make the overlay on.
    MakeOverlay,
    /// Write to the overlay on.
    WriteToOverlay,
}

impl Doing {
    /// The words for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Doing::AwaitMaps => "wait for the id maps",
            Doing::WriteMap => "write the id map",
            Doing::SetHostName => "set the host name",
            Doing::EnterGroup => "enter the control group",
            Doing::CloseUserNamespaces => "close further user namespaces",
            Doing::PrepareNetwork => "prepare the network",
            Doing::LoopbackUp => "bring up the loopback interface",
            Doing::TakeFromHost => "take from the host",
            Doing::TakeCopy => "take the copy",
            Doing::TakeStream => "take the stream",
            Doing::TakeDevice => "take the device",
            Doing::HandOut => "hand out the stream",
            Doing::CutOff => "cut the mounts off",
            Doing::NewRoot => "build a new root",
            Doing::MakeTreeReadOnly => "make the tree read-only",
            Doing::Mount => "mount",
            Doing::MakeReadOnly => "make read-only",
            Doing::Make => "make",
            Doing::PutIn => "put in",
            Doing::Link => "link",
            Doing::Cover => "cover",
            Doing::MountKernelView => "mount the kernel's view at",
            Doing::Remove => "remove",
            Doing::GoTo => "go to",
            Doing::Hide => "hide",
            Doing::Protect => "protect",
            Doing::Fix => "fix in place",
            Doing::LimitProcesses => "limit processes",
            Doing::HideFirstProcess => "hide the first process",
            Doing::AskSockets => "ask for the world's sockets",
            Doing::NoNewPrivileges => "give up new privileges",
            Doing::RestrictByLandlock => "restrict by Landlock",
            Doing::DropCapabilities => "give up capabilities",
            Doing::InstallFilter => "install the system call filter",
            Doing::OpenLayer => "open a layer for the overlay on",
            Doing::MakeOverlay => "make the overlay on",
            Doing::WriteToOverlay => "write to the overlay on",
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a step is about, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// What was being done.
    pub doing: Doing,
    /// With which path.
    pub path: Option<PathBuf>,
    /// A held place whose overlay is being made.
    pub overlay_of: Option<PathBuf>,
}
