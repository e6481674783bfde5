//! Programs that are started for somebody else: in a session of their own, marked, and with their own terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, getpid, getppid, getrlimit, ioctl_tiocsctty, setrlimit, setsid,
};
use rustix::stdio::stdin;

use crate::marker::{self, Mark};
use crate::mask::Mask;

/// How many descriptors a process may have open after most logins.
const DESCRIPTORS: u64 = 1024;

/// Has a command begin in a session of its own and with the mark of one of Substrate's. Where its standard
/// input is a terminal of its own, that controls it.
pub fn apart(command: &mut Command, terminal: bool) {
    let prepare = move || -> io::Result<()> {
        setsid()?;
        marker::set(Mark::Session)?;
        if terminal {
            ioctl_tiocsctty(stdin())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec this makes three system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Has a program begin as nobody's child, in a session of its own, with no signal ignored or held back that
/// was so here: it outlives us and our terminal. Its parent is a process between, which has ended by then.
pub fn as_nobodys_child(command: &mut Command) {
    let prepare = || -> io::Result<()> {
        setsid()?;
        hear_all_signals();
        let between = getpid();
        // SAFETY: this process has one thread, and both go on with system calls alone.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {}
            // SAFETY: ends this process without running anything of the one that it is a copy of.
            _ => unsafe { libc::_exit(0) },
        }
        // What asks for its ancestors must not find us.
        while getppid() == Some(between) {
            rustix::thread::sched_yield();
        }
        Ok(())
    };
    // SAFETY: between fork and exec this makes system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Has a command begin with signals, modes of new files and room for descriptors as a login has them, whatever they are
/// here, and end by SIGALRM after so many seconds.
pub fn as_from_a_login(command: &mut Command, seconds: u32) {
    let prepare = move || -> io::Result<()> {
        hear_all_signals();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let most = getrlimit(Resource::Nofile).maximum;
        let descriptors = Rlimit {
            current: Some(most.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS))),
            maximum: most,
        };
        setrlimit(Resource::Nofile, descriptors)?;
        // SAFETY: a timer of the process alone, which the program keeps.
        unsafe { libc::alarm(seconds) };
        Ok(())
    };
    // SAFETY: between fork and exec this makes system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Holds no signal back, and ignores none of those that whoever started us may have had us ignore.
fn hear_all_signals() {
    Mask::NONE.set();
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGCHLD,
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ] {
        // SAFETY: a default disposition needs no function of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    use crate::terminal;

    #[test]
    fn a_command_is_marked_and_has_its_own_terminal_while_we_have_neither() {
        let before = marker::get().unwrap();
        let pty = terminal::open_pty().unwrap();
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "ulimit -H -R >&2; echo there >/dev/tty; ps -o sid= -p $$ >&2",
            ])
            .stdin(Stdio::from(pty.slave.try_clone().unwrap()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        apart(&mut command, true);
        let child = command.spawn().unwrap();
        let pid = child.id().to_string();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("unlimited"), "{said}");
        assert!(said.contains(&pid), "{said}");
        assert_eq!(marker::get().unwrap(), before);
    }
}
