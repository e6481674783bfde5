//! Our filter against filters that `seccompiler` makes from the same table. It knows one answer for a filter,
//! so there is one filter for each of ours, and the kernel's rule for several: the strictest counts.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::*;

#[cfg(target_arch = "x86_64")]
const TARGET: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const TARGET: TargetArch = TargetArch::aarch64;

/// What stands for the listener, which `seccompiler` does not know.
const LISTENER: SeccompAction = SeccompAction::Trace(0);

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// An argument, as the low half that the kernel looks at.
fn argument_is(at: u32, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(at as u8, SeccompCmpArgLen::Dword, operator, value).unwrap()
}

/// One condition for each bit of a set: any of them will do.
fn any_bit(at: u32, bits: u32) -> Vec<SeccompCondition> {
    let each = (0..32).map(|bit| 1 << bit).filter(|bit| bits & bit != 0);
    each.map(|bit| argument_is(at, SeccompCmpOp::MaskedEq(bit.into()), bit.into()))
        .collect()
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).unwrap()
}

/// What is refused in words of the table, for each answer.
fn rules(options: Options) -> Vec<(SeccompAction, Rules)> {
    let mut answers: Vec<(SeccompAction, Rules)> = Vec::new();
    let mut add = |action: SeccompAction, number: i64, found: Vec<SeccompRule>| {
        let at = answers.iter().position(|(known, _)| *known == action);
        let at = at.unwrap_or_else(|| {
            answers.push((action, Rules::new()));
            answers.len() - 1
        });
        answers[at].1.entry(number).or_default().extend(found);
    };
    let errno = |errno: i32| SeccompAction::Errno(errno as u32);
    let (eperm, enosys) = (errno(libc::EPERM), errno(libc::ENOSYS));
    for number in REFUSED {
        add(eperm.clone(), *number, Vec::new());
    }
    for command in REFUSED_IOCTLS {
        let is = argument_is(1, SeccompCmpOp::Eq, u64::from(*command));
        add(eperm.clone(), libc::SYS_ioctl, vec![rule(vec![is])]);
    }
    let families = FAMILIES.iter().filter(|family| {
        !(options.refuse_internet && [libc::AF_INET, libc::AF_INET6].contains(family))
    });
    let others = families.map(|family| argument_is(0, SeccompCmpOp::Ne, *family as u64));
    let other_family = vec![rule(others.collect())];
    add(errno(libc::EAFNOSUPPORT), libc::SYS_socket, other_family);
    let netlink = argument_is(0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64);
    let unknown = NETLINKS
        .iter()
        .map(|protocol| argument_is(2, SeccompCmpOp::Ne, *protocol as u64));
    let conditions = std::iter::once(netlink).chain(unknown).collect();
    add(
        errno(libc::EPROTONOSUPPORT),
        libc::SYS_socket,
        vec![rule(conditions)],
    );
    if !options.allow_ptrace {
        for number in PTRACE_FAMILY {
            add(eperm.clone(), *number, Vec::new());
        }
    }
    if !options.allow_userns {
        for number in [libc::SYS_clone, libc::SYS_unshare] {
            let flags = any_bit(0, libc::CLONE_NEWUSER as u32);
            add(eperm.clone(), number, vec![rule(flags)]);
        }
        add(enosys.clone(), libc::SYS_clone3, Vec::new());
    }
    if options.hold_sockets {
        add(LISTENER, libc::SYS_connect, Vec::new());
        let unix = argument_is(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64);
        for datagram in any_bit(1, DATAGRAMS) {
            let pair = vec![rule(vec![datagram.clone()])];
            add(errno(libc::ESOCKTNOSUPPORT), libc::SYS_socketpair, pair);
            let socket = vec![rule(vec![unix.clone(), datagram])];
            add(errno(libc::ESOCKTNOSUPPORT), libc::SYS_socket, socket);
        }
    }
    if options.notify_exec {
        for number in [libc::SYS_execve, libc::SYS_execveat] {
            add(LISTENER, number, Vec::new());
        }
    }
    if options.refuse_setid {
        for (number, mode, bits) in MODES {
            let any = any_bit(*mode, *bits).into_iter();
            add(
                eperm.clone(),
                *number,
                any.map(|bit| rule(vec![bit])).collect(),
            );
        }
        for (number, flags) in OPENS {
            for makes in any_bit(*flags, MAKES) {
                for mode in any_bit(flags + 1, SETUID | SETGID) {
                    let both = vec![rule(vec![makes.clone(), mode])];
                    add(eperm.clone(), *number, both);
                }
            }
        }
        add(enosys, libc::SYS_openat2, Vec::new());
    }
    answers
}

fn compiled(options: Options) -> Vec<BpfProgram> {
    let answers = rules(options).into_iter();
    let filters = answers.map(|(action, rules)| {
        SeccompFilter::new(rules, SeccompAction::Allow, action, TARGET).unwrap()
    });
    filters.map(|filter| filter.try_into().unwrap()).collect()
}

/// What the filters together answer, in the words of ours.
fn asked(programs: &[BpfProgram], number: u32, args: [u64; 6]) -> u32 {
    let mut answer = RET_ALLOW;
    for program in programs {
        let lines = program
            .iter()
            .map(|line| (line.code, line.jt, line.jf, line.k));
        let lines: Vec<_> = lines.collect();
        let found = super::tests::interpret(&lines, ARCH, number, args);
        if found != RET_ALLOW {
            assert_eq!(answer, RET_ALLOW, "two answers to number {number}");
            answer = found;
        }
    }
    match answer {
        found if found == u32::from(LISTENER) => RET_NOTIFY,
        found => found,
    }
}

/// Words that decide something, and some that do not.
const WORDS: [u64; 9] = [
    0,
    1,
    2,
    0x5412,
    0xdead_0000_0000_5412,
    0x1000_0011,
    0o4755,
    0o2755,
    libc::O_CREAT as u64 | 1,
];

#[test]
fn seccompiler_comes_to_the_same_for_every_call_and_every_set_of_options() {
    for set in 0..64_u32 {
        let options = Options::of_bits(set);
        let ours = Filter::new(options).unwrap();
        let theirs = compiled(options);
        let decided: Vec<i64> = rules(options)
            .iter()
            .flat_map(|(_, r)| r.keys().copied())
            .collect();
        for number in 0..500_u32 {
            // Where no argument is looked at, two will do.
            let words = match decided.contains(&i64::from(number)) {
                true => &WORDS[..],
                false => &WORDS[..2],
            };
            for (a, b) in words
                .iter()
                .flat_map(|a| words.iter().map(move |b| (*a, *b)))
            {
                let args = [a, b, a, b, a, b];
                let answers = (
                    super::tests::run(&ours, ARCH, number, args),
                    asked(&theirs, number, args),
                );
                assert_eq!(
                    answers.0, answers.1,
                    "{options:?} number {number} {args:x?}"
                );
            }
        }
    }
}
