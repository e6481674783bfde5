//! The program through which a command starts that the guard of its world is to judge. The first process
//! of a world cannot be looked at, and what it starts in its own memory neither; so the child becomes this
//! first, of which nothing is asked, and this becomes the command, as any process would.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use substrate_sys::memfd;

/// `execve(argv[1], argv + 2, environ)`; where that fails `exit_group(126)`, or 127 where there is no such file.
#[cfg(target_arch = "x86_64")]
const CODE: [u8; 45] = [
    0x48, 0x8b, 0x04, 0x24, // mov (%rsp), %rax
    0x48, 0x8d, 0x74, 0x24, 0x18, // lea 24(%rsp), %rsi
    0x48, 0x8d, 0x54, 0xc4, 0x10, // lea 16(%rsp, %rax, 8), %rdx
    0x48, 0x8b, 0x7c, 0x24, 0x10, // mov 16(%rsp), %rdi
    0xb8, 0x3b, 0x00, 0x00, 0x00, // mov $59, %eax
    0x0f, 0x05, // syscall
    0xbf, 0x7e, 0x00, 0x00, 0x00, // mov $126, %edi
    0x83, 0xf8, 0xfe, // cmp $-2, %eax
    0x75, 0x02, // jne +2
    0xff, 0xc7, // inc %edi
    0xb8, 0xe7, 0x00, 0x00, 0x00, // mov $231, %eax
    0x0f, 0x05, // syscall
];
#[cfg(target_arch = "aarch64")]
const CODE: [u8; 48] = [
    0xe3, 0x03, 0x40, 0xf9, // ldr x3, [sp]
    0xe0, 0x0b, 0x40, 0xf9, // ldr x0, [sp, #16]
    0xe1, 0x63, 0x00, 0x91, // add x1, sp, #24
    0xe2, 0x43, 0x00, 0x91, // add x2, sp, #16
    0x42, 0x0c, 0x03, 0x8b, // add x2, x2, x3, lsl #3
    0xa8, 0x1b, 0x80, 0xd2, // mov x8, #221
    0x01, 0x00, 0x00, 0xd4, // svc #0
    0x1f, 0x08, 0x00, 0xb1, // cmn x0, #2
    0xc0, 0x0f, 0x80, 0xd2, // mov x0, #126
    0x00, 0x14, 0x80, 0x9a, // cinc x0, x0, eq
    0xc8, 0x0b, 0x80, 0xd2, // mov x8, #94
    0x01, 0x00, 0x00, 0xd4, // svc #0
];

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Where it lies in its own memory.
const BASE: u64 = 0x40_0000;
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// The code, and that the stack is for data only.
const SEGMENTS: usize = 2;
const START: usize = HEADER + SEGMENTS * SEGMENT;
const SIZE: usize = START + CODE.len();

/// The program as a file.
fn image() -> Vec<u8> {
    let mut file = Vec::with_capacity(SIZE);
    // 64 bits, the order of bytes of this machine, a program that lies where it says.
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for number in [2_u16, MACHINE] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes());
    for number in [BASE + START as u64, HEADER as u64, 0] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for number in [HEADER, SEGMENT, SEGMENTS, 64, 0, 0] {
        file.extend_from_slice(&(number as u16).to_le_bytes());
    }
    const LOAD: u32 = 1;
    const STACK: u32 = 0x6474_e551;
    for (kind, rights, base, size, align) in [
        (LOAD, 5_u32, BASE, SIZE as u64, 0x1000),
        (STACK, 6, 0, 0, 16),
    ] {
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&rights.to_le_bytes());
        for number in [0, base, base, size, size, align] {
            file.extend_from_slice(&number.to_le_bytes());
        }
    }
    file.extend_from_slice(&CODE);
    file
}

/// The program as a file in memory; an error where this machine runs no such files.
pub fn file() -> io::Result<BorrowedFd<'static>> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file.as_fd());
    }
    let file = memfd::program(c"start", &image())?;
    Ok(FILE.get_or_init(|| file).as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Output};

    fn start(words: &[&str]) -> Output {
        let path = format!("/proc/self/fd/{}", file().unwrap().as_raw_fd());
        // The descriptor is closed in the child only after the kernel has opened the path.
        let mut command = Command::new(path);
        command.arg0("start").args(words).env("A", "b c");
        command.output().unwrap()
    }

    #[test]
    fn it_becomes_what_it_is_told_with_the_words_and_variables_that_it_got() {
        let script = "printf '%s|' \"$0\" \"$@\" \"$A\"";
        let output = start(&["/bin/sh", "zeroth", "-c", script, "x", "", "y z"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "x||y z|b c|");
        assert_eq!(output.status.code(), Some(0));
        let shown = start(&["/bin/sh", "zeroth", "-c", "tr '\\0' ' ' </proc/$$/cmdline"]);
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.starts_with("zeroth -c"), "{shown}");
    }

    #[test]
    fn what_cannot_be_started_is_told_as_shells_do() {
        assert_eq!(start(&["/nonexistent", "x"]).status.code(), Some(127));
        assert_eq!(start(&["/etc/passwd", "x"]).status.code(), Some(126));
        assert_eq!(start(&["/tmp", "x"]).status.code(), Some(126));
    }
}
