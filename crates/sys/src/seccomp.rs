//! The system call filter of a world: data in, a short program out.
//!
//! The kernel runs a new filter once for every system call number to learn which ones it may
//! always let pass, so installing costs by the length of the path through the program. The
//! numbers are therefore searched as a tree, not as a chain.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
/// Numbers with this bit are the x32 ABI, which would go around every number below.
const X32_BIT: u32 = 0x4000_0000;

const RET_KILL: u32 = 0x8000_0000;
const RET_NOTIFY: u32 = 0x7fc0_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_ALLOW: u32 = 0x7fff_0000;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;
/// The low half of an argument; both architectures are little-endian.
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

/// Kernel interfaces that reach around namespaces and mounts, or that no build, test or
/// editor needs and that keep turning up in exploits.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_setns,
    // Keys belong to the user, not to a namespace.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    // Work handed to a ring is not seen by this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    // The kernel's log tells about the host.
    libc::SYS_syslog,
];

const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

const PTRACE_FAMILY: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// Socket families that stay inside a network namespace; vsock and others do not.
const FAMILIES: &[i32] = &[
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// What programs ask of netlink: addresses and routes, sockets, devices that come and go. The others (audit, netfilter,
/// generic families) are kernel surface that no build or test needs.
const NETLINKS: &[i32] = &[
    libc::NETLINK_ROUTE,
    libc::NETLINK_SOCK_DIAG,
    libc::NETLINK_KOBJECT_UEVENT,
];

/// Calls that give a file its mode, the argument that holds the mode, and the bits that are
/// refused in it. Directories are shared with a group by the setgid bit, and a filter cannot tell
/// what a path or descriptor stands for; where only files are made, it is refused too.
const MODES: &[(libc::c_long, u32, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, SETUID),
    (libc::SYS_fchmod, 1, SETUID),
    (libc::SYS_fchmodat, 2, SETUID),
    (SYS_FCHMODAT2, 2, SETUID),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, SETUID | SETGID),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, SETUID | SETGID | DEVICE),
    (libc::SYS_mknodat, 2, SETUID | SETGID | DEVICE),
];

/// Calls that may make a file: the argument with the flags; the mode is the next one.
const OPENS: &[(libc::c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];

const SYS_FCHMODAT2: libc::c_long = 452;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// Set for devices of both kinds, and for nothing else that can be made. The kernel lets anybody make
/// the one that overlays take for a removed name.
const DEVICE: u32 = 0o020_000;
/// Without one of these an open makes nothing, and what lies where the mode would be is no mode.
const MAKES: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

const DATAGRAMS: u32 = libc::SOCK_DGRAM as u32;

/// Typing into a terminal for its owner, and the console's version of the same.
const REFUSED_IOCTLS: &[u32] = &[0x5412, 0x541c];

/// What a filter lets through besides the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Debuggers work inside.
    pub allow_ptrace: bool,
    /// User namespaces can be made inside.
    pub allow_userns: bool,
    /// Internet sockets are refused: where no network namespace holds them.
    pub refuse_internet: bool,
    /// Every program start is put to a listener.
    pub notify_exec: bool,
    /// No file becomes one that runs with its owner's rights: where writes are real.
    pub refuse_setid: bool,
    /// Sockets are connected by a listener, and unix sockets that send without being connected are
    /// refused: no namespace keeps either from a socket of the host that has a path.
    pub hold_sockets: bool,
}

/// A compiled filter.
#[derive(Debug, Clone)]
pub struct Filter {
    program: Vec<libc::sock_filter>,
    listener: bool,
    starts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Allow,
    Kill,
    Errno(i32),
    Notify,
    CheckIoctl,
    CheckUserns,
    CheckFamily,
    /// Which part of the kernel a netlink socket talks to.
    CheckNetlink,
    /// Whether a unix socket is one of datagrams.
    CheckType,
    /// The argument that holds a mode, and the bits that it must not have.
    CheckMode(u32, u32),
    /// The argument that holds the flags of an open.
    CheckOpen(u32),
}

enum Line {
    Load(u32),
    Jump(u16, u32, Target, Target),
    Return(u32),
    Here(Outcome),
}

#[derive(Clone, Copy)]
enum Target {
    Next,
    Skip(usize),
    To(Outcome),
}

impl Filter {
    /// Builds the filter for these options; fails when a jump would be too far for the kernel.
    pub fn new(options: Options) -> io::Result<Filter> {
        let mut table: Vec<(u32, Outcome)> = Vec::new();
        let mut put = |numbers: &[libc::c_long], outcome| {
            table.extend(numbers.iter().map(|n| (*n as u32, outcome)));
        };
        put(REFUSED, Outcome::Errno(libc::EPERM));
        put(&[libc::SYS_ioctl], Outcome::CheckIoctl);
        put(&[libc::SYS_socket], Outcome::CheckFamily);
        if !options.allow_ptrace {
            put(PTRACE_FAMILY, Outcome::Errno(libc::EPERM));
        }
        if !options.allow_userns {
            put(&[libc::SYS_clone, libc::SYS_unshare], Outcome::CheckUserns);
            // Its flags lie in memory, out of a filter's reach; libraries fall back to clone.
            put(&[libc::SYS_clone3], Outcome::Errno(libc::ENOSYS));
        }
        if options.hold_sockets {
            put(&[libc::SYS_connect], Outcome::Notify);
            put(&[libc::SYS_socketpair], Outcome::CheckType);
        }
        if options.notify_exec {
            put(&[libc::SYS_execve, libc::SYS_execveat], Outcome::Notify);
        }
        if options.refuse_setid {
            for (number, mode, bits) in MODES {
                put(&[*number], Outcome::CheckMode(*mode, *bits));
            }
            for (number, flags) in OPENS {
                put(&[*number], Outcome::CheckOpen(*flags));
            }
            // Its mode lies in memory, out of a filter's reach; programs fall back to openat.
            put(&[libc::SYS_openat2], Outcome::Errno(libc::ENOSYS));
        }
        table.sort_unstable_by_key(|(nr, _)| *nr);

        let mut lines = vec![
            Line::Load(OFFSET_ARCH),
            Line::Jump(JUMP_EQUAL, ARCH, Target::Next, Target::To(Outcome::Kill)),
            Line::Load(OFFSET_NR),
        ];
        if cfg!(target_arch = "x86_64") {
            lines.push(Line::Jump(
                JUMP_AT_LEAST,
                X32_BIT,
                Target::To(Outcome::Errno(libc::ENOSYS)),
                Target::Next,
            ));
        }
        search(&table, &mut lines);
        for outcome in checks(&table) {
            check(outcome, options, &mut lines);
        }
        for outcome in [
            Outcome::Allow,
            Outcome::Kill,
            Outcome::Notify,
            Outcome::Errno(libc::EPERM),
            Outcome::Errno(libc::ENOSYS),
            Outcome::Errno(libc::EAFNOSUPPORT),
            Outcome::Errno(libc::ESOCKTNOSUPPORT),
            Outcome::Errno(libc::EPROTONOSUPPORT),
        ] {
            lines.push(Line::Here(outcome));
            lines.push(Line::Return(match outcome {
                Outcome::Kill => RET_KILL,
                Outcome::Notify => RET_NOTIFY,
                Outcome::Errno(errno) => RET_ERRNO | errno as u32,
                _ => RET_ALLOW,
            }));
        }
        Ok(Filter {
            program: assemble(&lines)?,
            listener: options.notify_exec || options.hold_sockets,
            starts: options.notify_exec,
        })
    }

    /// Whether program starts are put to a listener.
    pub fn judges_starts(&self) -> bool {
        self.starts
    }

    /// How many instructions the program has.
    pub fn len(&self) -> usize {
        self.program.len()
    }

    /// Never: every filter at least checks the architecture.
    pub fn is_empty(&self) -> bool {
        self.program.is_empty()
    }

    /// Installs the filter for this thread and all it will start; a filter that notifies gives
    /// its listener. Needs `no_new_privs`. Allocates nothing.
    pub fn install(&self) -> io::Result<Option<OwnedFd>> {
        let program = libc::sock_fprog {
            len: self.program.len() as u16,
            filter: self.program.as_ptr().cast_mut(),
        };
        let flags = if self.listener {
            // WAIT_KILLABLE_RECV: a signal cannot interrupt a start that is being judged.
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | 1 << 5
        } else {
            0
        };
        // SAFETY: `program` describes memory that outlives the call.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: with NEW_LISTENER the kernel returns a descriptor that nobody else owns.
        Ok(self
            .listener
            .then(|| unsafe { OwnedFd::from_raw_fd(rc as i32) }))
    }
}

/// A binary search over the numbers: half of them are left behind with every jump.
fn search(table: &[(u32, Outcome)], lines: &mut Vec<Line>) {
    match table {
        [] => {}
        [(nr, outcome)] => lines.push(Line::Jump(
            JUMP_EQUAL,
            *nr,
            Target::To(*outcome),
            Target::To(Outcome::Allow),
        )),
        _ => {
            let (low, high) = table.split_at(table.len() / 2);
            let mut left = Vec::new();
            search(low, &mut left);
            let jumps = left.len();
            lines.push(Line::Jump(
                JUMP_AT_LEAST,
                high[0].0,
                Target::Skip(jumps),
                Target::Next,
            ));
            lines.append(&mut left);
            search(high, lines);
        }
    }
}

/// The checks that calls of a table need, each once. An open ends in the check of its mode, and
/// jumps go only forward.
fn checks(table: &[(u32, Outcome)]) -> Vec<Outcome> {
    let mut needed: Vec<Outcome> = Vec::new();
    // A socket's family is looked at before its type or protocol.
    let mut modes: Vec<Outcome> = Vec::new();
    let add = |list: &mut Vec<Outcome>, outcome| {
        if !list.contains(&outcome) {
            list.push(outcome);
        }
    };
    for (_, outcome) in table {
        match *outcome {
            Outcome::CheckMode(..) | Outcome::CheckType => add(&mut modes, *outcome),
            Outcome::CheckOpen(flags) => {
                add(&mut needed, *outcome);
                add(&mut modes, mode_of_open(flags));
            }
            Outcome::CheckFamily => {
                add(&mut needed, *outcome);
                add(&mut modes, Outcome::CheckNetlink);
            }
            Outcome::CheckIoctl | Outcome::CheckUserns => add(&mut needed, *outcome),
            _ => {}
        }
    }
    needed.append(&mut modes);
    needed
}

fn mode_of_open(flags: u32) -> Outcome {
    Outcome::CheckMode(flags + 1, SETUID | SETGID)
}

/// The few calls whose arguments decide.
fn check(outcome: Outcome, options: Options, lines: &mut Vec<Line>) {
    let refuse = Target::To(Outcome::Errno(libc::EPERM));
    let allow = Target::To(Outcome::Allow);
    lines.push(Line::Here(outcome));
    match outcome {
        Outcome::CheckIoctl => {
            lines.push(Line::Load(argument(1)));
            for (i, command) in REFUSED_IOCTLS.iter().enumerate() {
                let otherwise = if i + 1 == REFUSED_IOCTLS.len() {
                    allow
                } else {
                    Target::Next
                };
                lines.push(Line::Jump(JUMP_EQUAL, *command, refuse, otherwise));
            }
        }
        Outcome::CheckUserns => {
            lines.push(Line::Load(argument(0)));
            let flag = libc::CLONE_NEWUSER as u32;
            lines.push(Line::Jump(JUMP_ANY_BIT, flag, refuse, allow));
        }
        Outcome::CheckType => {
            // Datagrams and "raw", which is the same, are the types that have this bit.
            let refuse = Target::To(Outcome::Errno(libc::ESOCKTNOSUPPORT));
            lines.push(Line::Load(argument(1)));
            lines.push(Line::Jump(JUMP_ANY_BIT, DATAGRAMS, refuse, allow));
        }
        Outcome::CheckNetlink => {
            lines.push(Line::Load(argument(2)));
            for (i, protocol) in NETLINKS.iter().enumerate() {
                let otherwise = match i + 1 == NETLINKS.len() {
                    true => Target::To(Outcome::Errno(libc::EPROTONOSUPPORT)),
                    false => Target::Next,
                };
                lines.push(Line::Jump(JUMP_EQUAL, *protocol as u32, allow, otherwise));
            }
        }
        Outcome::CheckMode(mode, bits) => {
            lines.push(Line::Load(argument(mode)));
            lines.push(Line::Jump(JUMP_ANY_BIT, bits, refuse, allow));
        }
        Outcome::CheckOpen(flags) => {
            lines.push(Line::Load(argument(flags)));
            let makes = Target::To(mode_of_open(flags));
            lines.push(Line::Jump(JUMP_ANY_BIT, MAKES, makes, allow));
        }
        _ => {
            let refuse = Target::To(Outcome::Errno(libc::EAFNOSUPPORT));
            lines.push(Line::Load(argument(0)));
            let families: Vec<i32> = FAMILIES
                .iter()
                .copied()
                .filter(|f| {
                    !(options.refuse_internet && (*f == libc::AF_INET || *f == libc::AF_INET6))
                })
                .collect();
            for (i, family) in families.iter().enumerate() {
                let otherwise = if i + 1 == families.len() {
                    refuse
                } else {
                    Target::Next
                };
                let known = match *family {
                    libc::AF_UNIX if options.hold_sockets => Target::To(Outcome::CheckType),
                    libc::AF_NETLINK => Target::To(Outcome::CheckNetlink),
                    _ => allow,
                };
                lines.push(Line::Jump(JUMP_EQUAL, *family as u32, known, otherwise));
            }
        }
    }
}

fn assemble(lines: &[Line]) -> io::Result<Vec<libc::sock_filter>> {
    let place = |outcome: Outcome| {
        let mut at = 0_usize;
        for line in lines {
            match line {
                Line::Here(here) if *here == outcome => return at,
                Line::Here(_) => {}
                _ => at += 1,
            }
        }
        at
    };
    let mut program = Vec::with_capacity(lines.len());
    for line in lines {
        let at = program.len();
        let jump = |target: Target| {
            let over = match target {
                Target::Next => Some(0),
                Target::Skip(n) => Some(n),
                // Only forward, which is all that the kernel takes.
                Target::To(outcome) => place(outcome).checked_sub(at + 1),
            };
            // A jump has one byte. Cut off, it would lead to some other outcome.
            let over = over.and_then(|over| u8::try_from(over).ok());
            over.ok_or_else(|| io::Error::other("the system call filter is too long"))
        };
        program.push(match line {
            Line::Here(_) => continue,
            Line::Load(offset) => libc::sock_filter {
                code: LOAD,
                jt: 0,
                jf: 0,
                k: *offset,
            },
            Line::Jump(code, k, yes, no) => libc::sock_filter {
                code: *code,
                jt: jump(*yes)?,
                jf: jump(*no)?,
                k: *k,
            },
            Line::Return(k) => libc::sock_filter {
                code: RETURN,
                jt: 0,
                jf: 0,
                k: *k,
            },
        });
    }
    Ok(program)
}

/// Whether the kernel knows an action, `SECCOMP_RET_USER_NOTIF` for one.
pub fn knows_action(action: u32) -> bool {
    // SAFETY: the pointer describes `action`.
    unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        ) == 0
    }
}

/// Whether a listener can put descriptors into the process that waits for its answer. Tried with
/// no process waiting, on a thread that ends with its filter.
pub fn listeners_pass_descriptors() -> bool {
    // _IOW('!', 3, struct seccomp_notif_addfd)
    const ADDFD: libc::Ioctl = 0x4018_2103;
    let tried = || -> io::Result<bool> {
        crate::caps::no_new_privs()?;
        let filter = Filter::new(Options {
            notify_exec: true,
            ..Options::default()
        })?;
        let Some(listener) = filter.install()? else {
            return Ok(false);
        };
        let nothing = [0_u64; 3];
        // SAFETY: the kernel reads 24 bytes, the size that the number of the call tells.
        let rc = unsafe { libc::ioctl(listener.as_raw_fd(), ADDFD, &raw const nothing) };
        // A kernel that knows the call misses the process; another does not know the call.
        Ok(rc < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT))
    };
    std::thread::spawn(tried)
        .join()
        .is_ok_and(|tried| tried.unwrap_or(false))
}

#[cfg(test)]
mod oracle;

#[cfg(test)]
mod tests {
    use super::*;

    impl Options {
        /// Each bit is an option.
        pub(super) fn of_bits(set: u32) -> Options {
            let has = |bit: u32| set & 1 << bit != 0;
            Options {
                allow_ptrace: has(0),
                allow_userns: has(1),
                refuse_internet: has(2),
                notify_exec: has(3),
                refuse_setid: has(4),
                hold_sockets: has(5),
            }
        }
    }

    /// Runs our program as the kernel would.
    pub(super) fn run(filter: &Filter, arch: u32, nr: u32, args: impl AsRef<[u64]>) -> u32 {
        let lines = filter.program.iter().map(|i| (i.code, i.jt, i.jf, i.k));
        interpret(&lines.collect::<Vec<_>>(), arch, nr, args)
    }

    /// Runs a program as the kernel would.
    pub(super) fn interpret(
        program: &[(u16, u8, u8, u32)],
        arch: u32,
        nr: u32,
        args: impl AsRef<[u64]>,
    ) -> u32 {
        /// Only other compilers use these two.
        const AND: u16 = 0x54;
        const JUMP: u16 = 0x05;
        let mut data = Vec::new();
        data.extend(nr.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend([0; 8]);
        data.extend(args.as_ref().iter().flat_map(|a| a.to_le_bytes()));
        data.resize(64, 0);
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let (code, jt, jf, k) = program[at];
            at += 1;
            let yes = match code {
                LOAD => {
                    let place = k as usize..k as usize + 4;
                    a = u32::from_le_bytes(data[place].try_into().unwrap());
                    continue;
                }
                AND => {
                    a &= k;
                    continue;
                }
                JUMP => {
                    at += k as usize;
                    continue;
                }
                RETURN => return k,
                JUMP_EQUAL => a == k,
                JUMP_AT_LEAST => a >= k,
                JUMP_ANY_BIT => a & k != 0,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(if yes { jt } else { jf });
        }
    }

    fn errno(e: i32) -> u32 {
        RET_ERRNO | e as u32
    }

    #[test]
    fn every_listed_call_is_refused_and_every_other_passes() {
        let filter = Filter::new(Options::default()).unwrap();
        for nr in 0..480u32 {
            let listed = REFUSED.iter().chain(PTRACE_FAMILY).any(|n| *n as u32 == nr);
            let expected = match i64::from(nr) {
                libc::SYS_clone3 => errno(libc::ENOSYS),
                libc::SYS_socket => continue,
                _ if listed => errno(libc::EPERM),
                _ => RET_ALLOW,
            };
            assert_eq!(run(&filter, ARCH, nr, [0, 0]), expected, "number {nr}");
        }
        assert!(filter.len() < 255, "jumps are one byte");
    }

    #[test]
    fn foreign_architectures_and_x32_do_not_get_in() {
        let filter = Filter::new(Options::default()).unwrap();
        assert_eq!(run(&filter, 0x4000_0003, 1, [0, 0]), RET_KILL);
        assert_eq!(run(&filter, ARCH, X32_BIT | 1, [0, 0]), errno(libc::ENOSYS));
    }

    #[test]
    fn arguments_decide_where_they_must() {
        let filter = Filter::new(Options::default()).unwrap();
        let call = |nr: libc::c_long, args| run(&filter, ARCH, nr as u32, args);
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5412]), errno(libc::EPERM));
        // The kernel looks at the low half only, so the upper half must not hide the command.
        assert_eq!(
            call(libc::SYS_ioctl, [0, 0xdead_0000_0000_5412]),
            errno(libc::EPERM)
        );
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5413]), RET_ALLOW);
        let newuser = libc::CLONE_NEWUSER as u64;
        assert_eq!(call(libc::SYS_unshare, [newuser, 0]), errno(libc::EPERM));
        assert_eq!(call(libc::SYS_clone, [newuser | 17, 0]), errno(libc::EPERM));
        assert_eq!(call(libc::SYS_clone, [17, 0]), RET_ALLOW);
        assert_eq!(call(libc::SYS_socket, [2, 0]), RET_ALLOW);
        assert_eq!(call(libc::SYS_socket, [40, 0]), errno(libc::EAFNOSUPPORT));
    }

    #[test]
    fn netlink_reaches_what_programs_need_and_no_more() {
        let filter = Filter::new(Options::default()).unwrap();
        for protocol in 0..64_u64 {
            let args = [libc::AF_NETLINK as u64, 3, protocol];
            let expected = match protocol {
                0 | 4 | 15 => RET_ALLOW,
                _ => errno(libc::EPROTONOSUPPORT),
            };
            let found = run(&filter, ARCH, libc::SYS_socket as u32, args);
            assert_eq!(found, expected, "protocol {protocol}");
        }
    }

    #[test]
    fn options_open_and_close_exactly_what_they_name() {
        let filter = Filter::new(Options {
            allow_ptrace: true,
            allow_userns: true,
            refuse_internet: true,
            notify_exec: true,
            refuse_setid: false,
            hold_sockets: false,
        })
        .unwrap();
        let call = |nr: libc::c_long, args| run(&filter, ARCH, nr as u32, args);
        assert_eq!(call(libc::SYS_ptrace, [0, 0]), RET_ALLOW);
        assert_eq!(call(libc::SYS_clone3, [0, 0]), RET_ALLOW);
        assert_eq!(
            call(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0]),
            RET_ALLOW
        );
        assert_eq!(call(libc::SYS_socket, [2, 0]), errno(libc::EAFNOSUPPORT));
        assert_eq!(call(libc::SYS_socket, [1, 0]), RET_ALLOW);
        assert_eq!(call(libc::SYS_execve, [0, 0]), RET_NOTIFY);
        assert_eq!(call(libc::SYS_mount, [0, 0]), errno(libc::EPERM));
    }

    #[test]
    fn sockets_are_connected_by_the_listener_and_unix_datagrams_refused() {
        let filter = Filter::new(Options {
            hold_sockets: true,
            ..Options::default()
        })
        .unwrap();
        let call = |nr: libc::c_long, args| run(&filter, ARCH, nr as u32, args);
        let (unix, internet) = (libc::AF_UNIX as u64, libc::AF_INET as u64);
        let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
        let refused = errno(libc::ESOCKTNOSUPPORT);
        assert_eq!(call(libc::SYS_connect, [3, 0]), RET_NOTIFY);
        for (kind, expected) in [(1, RET_ALLOW), (2, refused), (3, refused), (5, RET_ALLOW)] {
            for kind in [kind, kind | flags] {
                assert_eq!(call(libc::SYS_socket, [unix, kind]), expected, "{kind}");
                assert_eq!(call(libc::SYS_socketpair, [unix, kind]), expected, "{kind}");
            }
        }
        assert_eq!(call(libc::SYS_socket, [internet, 2]), RET_ALLOW);
        let without = Filter::new(Options::default()).unwrap();
        let connect = libc::SYS_connect as u32;
        assert_eq!(run(&without, ARCH, connect, [3, 0]), RET_ALLOW);
    }

    #[test]
    fn where_writes_are_real_no_file_gets_the_setuid_bit() {
        let filter = Filter::new(Options {
            refuse_setid: true,
            notify_exec: true,
            ..Options::default()
        })
        .unwrap();
        assert!(filter.len() < 255, "jumps are one byte");
        let call = |nr: libc::c_long, args: &[u64]| run(&filter, ARCH, nr as u32, args);
        let refused = errno(libc::EPERM);
        let garbage = 0o7777;
        assert_eq!(call(libc::SYS_chmod, &[0, 0o4755]), refused);
        assert_eq!(
            call(libc::SYS_chmod, &[0, 0o2755]),
            RET_ALLOW,
            "a directory"
        );
        assert_eq!(call(libc::SYS_chmod, &[0, 0o1777]), RET_ALLOW);
        assert_eq!(call(libc::SYS_fchmod, &[3, 0o104_755]), refused);
        assert_eq!(call(libc::SYS_fchmodat, &[3, 0, 0o4000]), refused);
        assert_eq!(call(SYS_FCHMODAT2, &[3, 0, 0o6755, 0]), refused);
        assert_eq!(call(SYS_FCHMODAT2, &[3, 0, 0o755, garbage]), RET_ALLOW);
        assert_eq!(call(libc::SYS_mknodat, &[3, 0, 0o102_755]), refused);
        assert_eq!(call(libc::SYS_mknod, &[0, 0o104_755]), refused);
        assert_eq!(call(libc::SYS_mknod, &[0, 0o020_644, 0]), refused);
        assert_eq!(call(libc::SYS_mknodat, &[3, 0, 0o060_644, 0]), refused);
        for kind in [0o100_644, 0o010_644, 0o140_644, 0o644] {
            assert_eq!(call(libc::SYS_mknod, &[0, kind, 0]), RET_ALLOW);
        }
        assert_eq!(call(libc::SYS_creat, &[0, 0o2755]), refused);
        assert_eq!(call(libc::SYS_openat2, &[3, 0, 0, 24]), errno(libc::ENOSYS));
        let create = libc::O_CREAT as u64 | 1;
        let unnamed = libc::O_TMPFILE as u64 | 1;
        for flags in [create, unnamed] {
            assert_eq!(call(libc::SYS_open, &[0, flags, 0o4755]), refused);
            assert_eq!(call(libc::SYS_openat, &[3, 0, flags, 0o2755]), refused);
            assert_eq!(call(libc::SYS_openat, &[3, 0, flags, 0o755]), RET_ALLOW);
        }
        // Nothing is made, so there is no mode.
        let directory = libc::O_DIRECTORY as u64;
        assert_eq!(call(libc::SYS_openat, &[3, 0, 0, garbage]), RET_ALLOW);
        assert_eq!(call(libc::SYS_open, &[0, directory, garbage]), RET_ALLOW);
        let without = Filter::new(Options::default()).unwrap();
        assert_eq!(
            run(&without, ARCH, libc::SYS_chmod as u32, [0, 0o4755]),
            RET_ALLOW
        );
    }

    /// What a call comes to, said again in plain words.
    fn expected(options: Options, nr: i64, args: [u64; 6]) -> u32 {
        let mode = |at: usize, bits: u32| match args[at] as u32 & bits {
            0 => RET_ALLOW,
            _ => errno(libc::EPERM),
        };
        let setid = options.refuse_setid;
        let userns = options.allow_userns;
        match nr {
            libc::SYS_execve | libc::SYS_execveat if options.notify_exec => RET_NOTIFY,
            libc::SYS_ioctl if REFUSED_IOCTLS.contains(&(args[1] as u32)) => errno(libc::EPERM),
            libc::SYS_clone3 if !userns => errno(libc::ENOSYS),
            libc::SYS_clone | libc::SYS_unshare if !userns => mode(0, libc::CLONE_NEWUSER as u32),
            libc::SYS_openat2 if setid => errno(libc::ENOSYS),
            libc::SYS_connect if options.hold_sockets => RET_NOTIFY,
            libc::SYS_socketpair if options.hold_sockets && args[1] as u32 & DATAGRAMS != 0 => {
                errno(libc::ESOCKTNOSUPPORT)
            }
            libc::SYS_socket => match args[0] as i32 {
                libc::AF_UNIX if options.hold_sockets && args[1] as u32 & DATAGRAMS != 0 => {
                    errno(libc::ESOCKTNOSUPPORT)
                }
                libc::AF_INET | libc::AF_INET6 if options.refuse_internet => {
                    errno(libc::EAFNOSUPPORT)
                }
                libc::AF_NETLINK if !NETLINKS.contains(&(args[2] as i32)) => {
                    errno(libc::EPROTONOSUPPORT)
                }
                family if FAMILIES.contains(&family) => RET_ALLOW,
                _ => errno(libc::EAFNOSUPPORT),
            },
            _ if REFUSED.contains(&nr) => errno(libc::EPERM),
            _ if PTRACE_FAMILY.contains(&nr) && !options.allow_ptrace => errno(libc::EPERM),
            _ if setid && MODES.iter().any(|(call, ..)| *call == nr) => {
                let found = MODES.iter().find(|(call, ..)| *call == nr);
                found.map_or(RET_ALLOW, |(_, at, bits)| mode(*at as usize, *bits))
            }
            _ if setid && OPENS.iter().any(|(call, _)| *call == nr) => {
                let at = OPENS.iter().find(|(call, _)| *call == nr).unwrap().1 as usize;
                match args[at] as u32 & MAKES {
                    0 => RET_ALLOW,
                    _ => mode(at + 1, SETUID | SETGID),
                }
            }
            _ => RET_ALLOW,
        }
    }

    #[test]
    fn every_set_of_options_does_what_it_says_for_every_call() {
        let words = [
            0,
            1,
            0x5412,
            0x1000_0000,
            0o4755,
            0o2755,
            libc::O_CREAT as u64,
            2,
            libc::AF_NETLINK as u64,
        ];
        for set in 0..64_u32 {
            let options = Options::of_bits(set);
            let filter = Filter::new(options).unwrap();
            for nr in 0..500 {
                for (a, b) in words
                    .iter()
                    .flat_map(|a| words.iter().map(move |b| (*a, *b)))
                {
                    let args = [a, b, a, b, a, b];
                    assert_eq!(
                        run(&filter, ARCH, nr, args),
                        expected(options, nr.into(), args),
                        "{options:?} number {nr} {args:x?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_jump_that_is_too_far_is_no_filter() {
        let mut lines = vec![Line::Jump(
            JUMP_EQUAL,
            1,
            Target::To(Outcome::Kill),
            Target::Next,
        )];
        lines.extend((0..255).map(|_| Line::Load(0)));
        lines.extend([Line::Here(Outcome::Kill), Line::Return(RET_KILL)]);
        assert!(assemble(&lines).is_ok());
        lines.insert(1, Line::Load(0));
        assert!(assemble(&lines).is_err());
    }

    #[test]
    fn no_argument_lets_a_start_go_by_the_listener() {
        let filter = Filter::new(Options {
            notify_exec: true,
            ..Options::default()
        })
        .unwrap();
        for call in [libc::SYS_execve, libc::SYS_execveat] {
            for word in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
                assert_eq!(run(&filter, ARCH, call as u32, [word; 6]), RET_NOTIFY);
            }
        }
    }
}
