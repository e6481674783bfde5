//! Netlink: messages are built and read, and a request gets its acknowledgements, with nothing allocated on
//! the way.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt,
};

/// What a socket is asked about.
pub type Protocol = Option<net::Protocol>;
/// Routes, links and addresses: the protocol whose number is 0.
pub const ROUTE: Protocol = None;
/// nftables and packet logging.
pub const NETFILTER: Protocol = Some(netlink::NETFILTER);
/// Questions about sockets.
pub const SOCK_DIAG: Protocol = Some(netlink::SOCK_DIAG);

/// How long an answer of the kernel may take before the request counts as failed.
const REPLY: Duration = Duration::from_secs(5);

const HEADER: usize = 16;

/// Opens a netlink socket in the calling thread's network namespace.
pub fn open(protocol: Protocol) -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let fd = net::socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(REPLY))?;
    Ok(fd)
}

/// Sends bytes that already are complete netlink messages.
pub fn send(fd: BorrowedFd<'_>, request: &[u8]) -> io::Result<()> {
    net::send(fd, request, SendFlags::empty())?;
    Ok(())
}

/// Receives one datagram; what does not fit is cut off.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (got, _) = net::recv(fd, buffer, RecvFlags::empty())?;
    Ok(got)
}

/// The same, without waiting for one.
pub fn receive_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (got, _) = net::recv(fd, buffer, RecvFlags::DONTWAIT)?;
    Ok(got)
}

/// Sends a request and waits for `acks` acknowledgements; the kernel's first error is returned.
///
/// Uses only the stack, so it may run between clone and exec.
pub fn transact(fd: BorrowedFd<'_>, request: &[u8], acks: usize) -> io::Result<()> {
    send(fd, request)?;
    let mut left = acks;
    let mut buffer = [0u8; 4096];
    while left > 0 {
        let got = match receive(fd, &mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        for (kind, body) in messages(&buffer[..got]) {
            if kind != libc::NLMSG_ERROR as u16 {
                continue;
            }
            let code = body
                .first_chunk()
                .map_or(-libc::EBADMSG, |b| i32::from_ne_bytes(*b));
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            left = left.saturating_sub(1);
        }
    }
    Ok(())
}

/// The messages of a datagram: type and what follows the header.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, body))
    })
}

/// The attributes in a run of them: their types, without the bits that say how they are made, and values.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind & 0x3fff, value))
    })
}

/// A run of messages under construction.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    start: usize,
}

/// The request wants an acknowledgement.
pub const ACK: u16 = 0x4;
const REQUEST: u16 = 0x1;
/// Create what is not there.
pub const CREATE: u16 = 0x400;
/// At the end of the list.
pub const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;

impl Messages {
    /// Starts a message of this type; `head` is the fixed part of its family.
    pub fn message(&mut self, kind: u16, flags: u16, head: &[u8]) -> &mut Self {
        self.start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(head);
        self.close()
    }

    /// Adds an attribute with this value.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.bytes
            .extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.close()
    }

    /// Adds a big-endian number.
    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// Adds a string with its final zero.
    pub fn string(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute made of what `fill` adds.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.close()
    }

    /// Pads to the alignment of netlink and writes the length of the open message.
    fn close(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// The finished bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_stop_at_the_first_that_does_not_fit() {
        let mut bytes = vec![20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        bytes.extend_from_slice(&[200, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let seen: Vec<_> = messages(&bytes).collect();
        assert_eq!(seen, vec![(2, &[1u8, 2, 3, 4][..])]);
        assert_eq!(messages(&[3, 0, 0]).count(), 0);
        assert_eq!(
            messages(&[0; 64]).count(),
            0,
            "a length of zero ends the walk"
        );
    }

    #[test]
    fn the_kernel_answers_a_bad_request_with_its_error() {
        let fd = open(ROUTE).unwrap();
        // RTM_GETLINK for an interface index that nobody has.
        let mut bytes = 32u32.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&18u16.to_ne_bytes());
        bytes.extend_from_slice(&5u16.to_ne_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&i32::MAX.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let error = transact(fd.as_fd(), &bytes, 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn lengths_cover_padding_and_nesting() {
        let mut m = Messages::default();
        m.message(7, ACK, &[1, 0, 0, 0]).nest(4, |m| {
            m.string(1, "abc").string(2, "de");
        });
        m.message(8, 0, &[]);
        let bytes = m.finish();
        assert_eq!(bytes[..4], 40u32.to_ne_bytes());
        assert_eq!(bytes[6..8], 5u16.to_ne_bytes());
        assert_eq!(bytes[20..22], 20u16.to_ne_bytes());
        assert_eq!(bytes[22..24], 0x8004u16.to_ne_bytes());
        assert_eq!(bytes[32..34], 7u16.to_ne_bytes());
        assert_eq!(bytes[40..44], 16u32.to_ne_bytes());
        assert_eq!(bytes.len(), 56);
    }
}
