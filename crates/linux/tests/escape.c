// Attempts to leave a world, one a name. Exit 0: the attempt was refused; 1: it worked;
// 2: it could not be tried. What happened is said on standard output.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char *arg, *arg2;

static int refused(const char *how) {
  printf("refused: %s: %s\n", how, strerror(errno));
  return 0;
}

// A negative result is a refusal, anything else got through.
static int call(const char *how, long result) {
  if (result < 0) return refused(how);
  printf("worked: %s\n", how);
  return 1;
}

/* Asked of no terminal at all, only the filter says EPERM: whatever the terminal would have said. */
static int filtered(const char *how, long result) {
  if (result == -1 && errno == EPERM) return refused(how);
  printf("%s: the filter lets it pass: %s\n", how, strerror(errno));
  return 1;
}

static int write_file(void) {
  int fd = open(arg, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0) return refused("open");
  return call("write", write(fd, "x", 1));
}

static int open_write(void) { return call(arg, open(arg, O_WRONLY)); }

// Contents count: an empty file tells nothing.
static int read_path(const char *path) {
  char buffer[64];
  int fd = open(path, O_RDONLY);
  if (fd < 0) return refused(path);
  ssize_t n = read(fd, buffer, sizeof buffer);
  close(fd);
  if (n <= 0) return printf("refused: %s is empty\n", path), 0;
  printf("worked: %s says %.*s\n", path, (int)n, buffer);
  return 1;
}

static int read_file(void) { return read_path(arg); }

static int read_by_root_links(void) {
  char path[8192];
  int through = 0;
  DIR *proc = opendir("/proc");
  for (struct dirent *e; proc && (e = readdir(proc));) {
    if (e->d_name[0] < '0' || e->d_name[0] > '9') continue;
    snprintf(path, sizeof path, "/proc/%s/root%s", e->d_name, arg);
    through |= read_path(path);
    snprintf(path, sizeof path, "/proc/%s/cwd/../../../../../..%s", e->d_name, arg);
    through |= read_path(path);
  }
  return through;
}

static int inherited_directories(void) {
  int through = 0;
  for (int fd = 0; fd < 1024; fd++) {
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) through = 1, printf("worked: fd %d is a directory\n", fd);
  }
  char path[64];
  for (int fd = 3; fd < 64; fd++) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char target[256];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n > 0) through = 1, printf("worked: fd %d was left open: %.*s\n", fd, (int)n, target);
  }
  if (!through) printf("refused: nothing was left open\n");
  return through;
}

static int hard_link(void) {
  if (link(arg, arg2) < 0) return refused("link");
  return read_path(arg2);
}

static int bind_mount(void) {
  mkdir(arg2, 0755);
  int through = call("mount", mount(arg, arg2, NULL, MS_BIND | MS_REC, NULL));
  through |= call("open_tree", syscall(428, AT_FDCWD, arg, 1));
  through |= call("fsopen", syscall(430, "tmpfs", 0));
  return through;
}

static int remount(void) {
  struct { uint64_t set, clear, propagation, userns; } attr = {0, 1, 0, 0};
  return call("remount", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL)) |
         call("mount_setattr", syscall(442, AT_FDCWD, "/", 0x8000, &attr, sizeof attr));
}

static int unmount(void) {
  return call("umount", umount2(arg, 0)) | call("umount detached", umount2(arg, MNT_DETACH)) |
         call("umount /proc", umount2("/proc", MNT_DETACH));
}

static int child_main(void *unused) { (void)unused; return 0; }

static int user_namespace(void) {
  static char stack[65536];
  int through = 0;
  pid_t pid = fork();
  if (pid == 0) _exit(unshare(CLONE_NEWUSER) == 0);
  int status;
  waitpid(pid, &status, 0);
  through |= WEXITSTATUS(status);
  printf("%s: unshare\n", WEXITSTATUS(status) ? "worked" : "refused");
  through |= call("clone", clone(child_main, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, NULL));
  struct { uint64_t v[11]; } args = {{CLONE_NEWUSER, 0, 0, 0, SIGCHLD}};
  long rc = syscall(435, &args, sizeof args);
  if (rc == 0) _exit(0);
  return through | call("clone3", rc);
}

// The way a sandbox inside the world would start, if that were allowed.
static int user_namespace_works(void) {
  if (unshare(CLONE_NEWUSER) < 0) return refused("unshare");
  printf("worked: unshare\n");
  return 1;
}

static int by_handle(void) {
  struct { struct file_handle h; char room[128]; } handle;
  int mount_id;
  handle.h.handle_bytes = sizeof handle.room;
  if (name_to_handle_at(AT_FDCWD, "/", &handle.h, &mount_id, 0) < 0) return refused("name_to_handle_at");
  int dir = open("/", O_RDONLY | O_DIRECTORY);
  return call("open_by_handle_at", open_by_handle_at(dir, &handle.h, O_RDONLY));
}

static int ptrace_pid(void) {
  pid_t pid = atoi(arg);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", pid);
  return call("attach", ptrace(PTRACE_SEIZE, pid, 0, 0)) | call(path, open(path, O_RDWR));
}

static int trace_child(void) {
  pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0) _exit(0);
    _exit(1);
  }
  int status;
  waitpid(pid, &status, 0);
  int through = WIFEXITED(status) && WEXITSTATUS(status);
  printf("%s: ptrace\n", through ? "worked" : "refused");
  return through;
}

static int look_into_first(void) {
  int through = 0;
  const char *files[] = {"mem", "environ", "maps", "auxv"};
  for (int i = 0; i < 4; i++) {
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/1/%s", files[i]);
    int fd = open(path, O_RDONLY);
    through |= call(path, fd < 0 ? fd : read(fd, &byte, 1));
  }
  char target[256];
  through |= call("/proc/1/exe", readlink("/proc/1/exe", target, sizeof target));
  through |= call("/proc/1/cwd", readlink("/proc/1/cwd", target, sizeof target));
  through |= call("/proc/1/fd/0", readlink("/proc/1/fd/0", target, sizeof target));
  return through;
}

static int kill_first(void) {
  kill(1, SIGKILL);
  kill(1, SIGSTOP);
  usleep(20000);
  // Still here to say so, and orphans are still taken care of.
  printf("refused: the first process lives\n");
  return 0;
}

static int signal_pid(void) { return call("kill", kill(atoi(arg), 0)); }

static int connect_path(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, arg, sizeof address.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  return call(arg, connect(fd, (void *)&address, sizeof address));
}

static struct sockaddr_un at_path(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  return address;
}

static int of_type(int type) {
  struct sockaddr_un address = at_path(arg);
  int fd = socket(AF_UNIX, type, 0);
  if (fd < 0) return refused("socket");
  return call(arg, connect(fd, (void *)&address, sizeof address));
}

static int connect_seqpacket(void) { return of_type(SOCK_SEQPACKET); }
static int connect_datagrams(void) { return of_type(SOCK_DGRAM); }
static int connect_nonblocking(void) { return of_type(SOCK_STREAM | SOCK_NONBLOCK); }

// Serves outside, until it is ended.
static int connect_listen(void) {
  struct sockaddr_un address = at_path(arg);
  int fd = socket(AF_UNIX, atoi(arg2), 0);
  unlink(arg);
  if (bind(fd, (void *)&address, sizeof address) || chmod(arg, 0777)) return 2;
  listen(fd, 100);
  printf("ready\n");
  pause();
  return 0;
}

static int connect_later(void) {
  for (int i = 0; i < 500 && access(arg, F_OK); i++) usleep(10000);
  return access(arg, F_OK) ? 2 : connect_path();
}

// From the directory, by the last name alone.
static int connect_relative(void) {
  char *name = strrchr(arg, '/');
  *name++ = 0;
  if (chdir(arg)) return refused("chdir");
  arg = name;
  return connect_path();
}

static int connect_by_link(void) {
  char link[] = "/tmp/link-to-socket";
  if (symlink(arg, link)) return 2;
  arg = link;
  return connect_path();
}

static int connect_by_root(void) {
  char path[4096];
  int worked = 0;
  for (int i = 0; i < 3; i++) {
    const char *through[] = {"/proc/self/root", "/proc/1/root", "/proc/thread-self/cwd/../../../../../.."};
    snprintf(path, sizeof path, "%s%s", through[i], arg);
    struct sockaddr_un address = at_path(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    worked |= call(path, connect(fd, (void *)&address, sizeof address));
  }
  return worked;
}

static int send_datagram(void) {
  struct sockaddr_un address = at_path(arg);
  struct iovec part = {"x", 1};
  struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &part, .msg_iovlen = 1};
  int pair[2] = {-1, -1}, fd = socket(AF_UNIX, SOCK_DGRAM, 0), raw = socket(AF_UNIX, SOCK_RAW, 0);
  socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
  return call("sendto", sendto(fd, "x", 1, 0, (void *)&address, sizeof address)) |
         call("sendmsg", sendmsg(fd, &message, 0)) | call("raw", sendmsg(raw, &message, 0)) |
         call("pair", sendmsg(pair[0], &message, 0));
}

static struct sockaddr_un flipped[2], flipping;
static volatile int flip_over;

static int flip(void *unused) {
  for (unsigned i = 0; !flip_over; i++) {
    memcpy(&flipping, &flipped[i % 2], sizeof flipping);
    dup2(10 + i % 2, 12);
  }
  return 0;
}

// The address and the descriptor change all the time; the harness looks whether anything arrived.
static int connect_flipping(void) {
  static char stack[65536];
  flipped[0] = at_path("/tmp/own");
  flipped[1] = at_path(arg);
  int own = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), got;
  bind(own, (void *)&flipped[0], sizeof flipped[0]);
  listen(own, 4096);
  clone(flip, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
  for (int i = 0; i < 4000; i++) {
    dup2(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), 10);
    dup2(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), 11);
    connect(12, (void *)&flipping, sizeof flipping);
    if ((got = accept(own, NULL, NULL)) >= 0) close(got);
    for (int fd = 3; fd < 64; fd++) if (fd != own && (fd < 10 || fd > 12)) close(fd);
  }
  flip_over = 1;
  wait(NULL);
  printf("refused: unless somebody was reached\n");
  return 0;
}

// Sockets of the world's own serve as they always do: here, renamed, linked, without waiting.
static int own_sockets(void) {
  char path[200], moved[200], linked[200];
  snprintf(path, sizeof path, "%s/own-socket", arg);
  snprintf(moved, sizeof moved, "%s/own-moved", arg);
  snprintf(linked, sizeof linked, "%s/own-linked", arg);
  int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};
  for (int i = 0; i < 2; i++) {
    struct sockaddr_un address = at_path(path);
    int server = socket(AF_UNIX, kinds[i], 0);
    unlink(path), unlink(moved), unlink(linked);
    if (bind(server, (void *)&address, sizeof address) || listen(server, 8)) return refused("bind");
    if (rename(path, moved)) return refused("rename");
    if (link(moved, linked)) return refused("link");
    const char *names[] = {moved, linked, linked};
    for (int n = 0; n < 3; n++) {
      address = at_path(names[n]);
      int client = socket(AF_UNIX, kinds[i] | (n == 2 ? SOCK_NONBLOCK : 0), 0);
      if (connect(client, (void *)&address, sizeof address)) return refused(names[n]);
      int there = accept(server, NULL, NULL);
      char byte = 0;
      struct ucred who = {0};
      socklen_t size = sizeof who;
      getsockopt(there, SOL_SOCKET, SO_PEERCRED, &who, &size);
      if (who.uid != getuid()) return printf("refused: the peer is %d\n", who.uid), 0;
      if (write(client, "y", 1) != 1 || read(there, &byte, 1) != 1 || byte != 'y') return refused("talk");
    }
    unlink(moved), unlink(linked);
  }
  return call("own sockets", 0);
}

static int connect_abstract(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path + 1, arg, strlen(arg));
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  return call(arg, connect(fd, (void *)&address, sizeof(sa_family_t) + 1 + strlen(arg)));
}

static int connect_tcp(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arg))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return refused("socket");
  return call("connect", connect(fd, (void *)&address, sizeof address));
}

static int odd_sockets(void) {
  return call("vsock", socket(AF_VSOCK, SOCK_STREAM, 0)) | call("packet", socket(AF_PACKET, SOCK_RAW, 0)) |
         call("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)) | call("alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
}

static int keys(void) {
  return call("add_key", syscall(SYS_add_key, "user", "substrate-probe", "x", 1, -3)) |
         call("request_key", syscall(SYS_request_key, "user", "substrate-probe", NULL, -3)) |
         call("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
}

static int kernel_doors(void) {
  char room[256] = {0};
  union bpf_attr bpf = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
  struct perf_event_attr perf = {.type = PERF_TYPE_SOFTWARE, .size = sizeof perf, .exclude_kernel = 1};
  int through = call("io_uring_setup", syscall(425, 4, room));
  through |= call("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &bpf, sizeof bpf));
  through |= call("perf_event_open", syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0));
  through |= call("userfaultfd", syscall(SYS_userfaultfd, 1));
  through |= call("setns", syscall(SYS_setns, open("/proc/self/ns/mnt", O_RDONLY), 0));
  through |= call("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
  through |= call("pivot_root", syscall(SYS_pivot_root, ".", "."));
  through |= call("chroot", chroot("."));
  through |= call("syslog", syscall(SYS_syslog, 3, room, sizeof room));
  through |= call("process_vm_readv", syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0));
  through |= call("sethostname", sethostname("x", 1));
  through |= call("mknod", mknod("device", S_IFBLK | 0600, makedev(8, 0)));
  through |= filtered("TIOCSTI", ioctl(-1, TIOCSTI, "x"));
  through |= filtered("TIOCLINUX", ioctl(-1, TIOCLINUX, "\3"));
  return through;
}

static int privileges(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{1, 1, 0}, {0, 0, 0}};
  int through = call("capset", syscall(SYS_capset, &header, data));
  if (getuid() != 0) through |= call("setuid", setuid(0));
  through |= call("setgid", setresgid(12345, 12345, 12345));
  through |= call("nice", setpriority(0, 0, -10));
  return through;
}

#if defined(__x86_64__)
static int foreign_call(int kind) {
  pid_t pid = fork();
  if (pid == 0) {
    long result;
    if (kind == 0) __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
    else result = syscall(0x40000000 | SYS_getpid);
    _exit(result > 0);
  }
  int status;
  waitpid(pid, &status, 0);
  int through = WIFEXITED(status) && WEXITSTATUS(status);
  printf("%s: status %x\n", through ? "worked" : "refused", status);
  return through;
}
static int int_80(void) { return foreign_call(0); }
static int x32(void) { return foreign_call(1); }
#endif

static int fork_many(void) {
  int most = atoi(arg), made = 0;
  for (; made < most; made++) {
    pid_t pid = fork();
    if (pid < 0) break;
    if (pid == 0) pause(), _exit(0);
  }
  int stopped = errno;
  // Only those of this process group are ours, and they end with the world anyway.
  printf("%s: %d processes (%s)\n", made < most ? "refused" : "worked", made, strerror(stopped));
  return made >= most;
}

static int eat_memory(void) {
  size_t most = (size_t)atoi(arg) << 20, step = 1 << 20, got = 0;
  pid_t pid = fork();
  if (pid == 0) {
    for (; got < most; got += step) {
      char *block = malloc(step);
      if (!block) _exit(0);
      memset(block, 1, step);
    }
    _exit(1);
  }
  int status;
  waitpid(pid, &status, 0);
  int through = WIFEXITED(status) && WEXITSTATUS(status);
  printf("%s: status %x\n", through ? "worked" : "refused", status);
  return through;
}

static int effective_root(void) {
  printf("%s: uid %d\n", geteuid() == 0 ? "worked" : "refused", geteuid());
  return geteuid() == 0;
}

// Leaves a process behind that has shaken off its session and its parent.
static int daemon_stays(void) {
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      signal(SIGHUP, SIG_IGN);
      signal(SIGTERM, SIG_IGN);
      for (;;) pause();
    }
    _exit(0);
  }
  usleep(50000);
  return 0;
}

static int rename_away(void) { return call("rename", rename(arg, arg2)); }

// Leaves a file behind that runs with its owner's rights, in every way that there is.
static int setid_file(void) {
  static const struct { mode_t bits; const char *how; } ways[] = {
    {04755, "chmod"}, {04755, "fchmod"}, {04755, "fchmodat"}, {04755, "fchmodat2"},
    {06755, "open"}, {06755, "openat"}, {06755, "openat2"}, {06755, "creat"},
    {06755, "mknod"}, {06755, "mknodat"}, {06755, "tmpfile"},
  };
  int through = 0;
  umask(0);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    const char *how = ways[i].how;
    mode_t mode = ways[i].bits;
    char path[64], link[64];
    snprintf(path, sizeof path, "setid-%s", how);
    int fd = strstr(how, "chmod") ? open(path, O_RDWR | O_CREAT, 0755) : -1;
    long rc = 0;
    errno = 0;
    if (!strcmp(how, "chmod")) rc = syscall(SYS_chmod, path, mode);
    else if (!strcmp(how, "fchmod")) rc = syscall(SYS_fchmod, fd, mode);
    else if (!strcmp(how, "fchmodat")) rc = syscall(SYS_fchmodat, AT_FDCWD, path, mode);
    else if (!strcmp(how, "fchmodat2")) rc = syscall(452, AT_FDCWD, path, mode, 0);
    else if (!strcmp(how, "open")) rc = syscall(SYS_open, path, O_RDWR | O_CREAT, mode);
    else if (!strcmp(how, "openat")) rc = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT, mode);
    else if (!strcmp(how, "openat2")) {
      struct { uint64_t flags, mode, resolve; } open_how = {O_RDWR | O_CREAT, mode, 0};
      rc = syscall(437, AT_FDCWD, path, &open_how, sizeof open_how);
    } else if (!strcmp(how, "creat")) rc = syscall(SYS_creat, path, mode);
    else if (!strcmp(how, "mknod")) rc = syscall(SYS_mknod, path, S_IFREG | mode, 0);
    else if (!strcmp(how, "mknodat")) rc = syscall(SYS_mknodat, AT_FDCWD, path, S_IFREG | mode, 0);
    else {
      int unnamed = syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, mode);
      snprintf(link, sizeof link, "/proc/self/fd/%d", unnamed);
      rc = unnamed < 0 ? -1 : linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    }
    int why = errno;
    struct stat st = {0};
    stat(path, &st);
    int got = (st.st_mode & 06000) != 0;
    printf("%s: %s (%s)\n", got ? "worked" : "refused", how, rc < 0 ? strerror(why) : "no error");
    through |= got;
    unlink(path);
  }
  return through;
}

// Directories are shared with a group like this, also where files must not be.
static int setgid_directory(void) {
  mkdir("shared", 0755);
  if (chmod("shared", 02775) < 0) return refused("chmod");
  struct stat st;
  return call("setgid", stat("shared", &st) == 0 && st.st_mode & 02000 ? 0 : -1) | rmdir("shared");
}

// Changes what a path or descriptor says about its file. The values are those that it has, so
// that a host that lets it pass is not harmed.
static int change_file(const char *path, int fd) {
  struct stat st;
  struct timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  int through = 0;
  if ((path ? stat(path, &st) : fstat(fd, &st)) < 0) return refused("stat");
  if (path) {
    through |= call("chmod", chmod(path, st.st_mode & 07777));
    through |= call("chown", chown(path, st.st_uid, st.st_gid));
    through |= call("utimensat", utimensat(AT_FDCWD, path, times, 0));
  } else {
    through |= call("fchmod", fchmod(fd, st.st_mode & 07777));
    through |= call("fchown", fchown(fd, st.st_uid, st.st_gid));
    through |= call("futimens", futimens(fd, times));
    through |= call("fsetxattr", fsetxattr(fd, "user.substrate", "x", 1, 0));
  }
  return through;
}

static int change_path(void) { return change_file(arg, -1); }

// A file of the host that is a standard stream; a copy of the descriptor is as good as itself.
static int change_stream(void) {
  int fd = atoi(arg);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  // What is not a file of the host's any more can be changed without harm.
  struct stat st;
  if (fstat(fd, &st) < 0) return refused("stat");
  if (S_ISFIFO(st.st_mode)) return dprintf(2, "refused: a pipe\n"), 0;
  int through = change_file(NULL, fd) | change_file(NULL, dup(fd)) | change_file(path, -1);
  // A device of the world's own, which it may use.
  if (fd == 0 && !S_ISCHR(st.st_mode)) through |= call("open for writing", open(path, O_WRONLY));
  return through;
}

// Reads its input as a program does that jumps about in a file.
static int seek_input(void) {
  char byte = 0;
  if (lseek(0, 3, SEEK_SET) != 3 || read(0, &byte, 1) != 1) return refused("lseek");
  printf("worked: %c\n", byte);
  return byte == 's';
}

static const struct { const char *name; int (*run)(void); } attempts[] = {
  {"write_file", write_file}, {"open_write", open_write}, {"read_file", read_file},
  {"read_by_root_links", read_by_root_links}, {"inherited_directories", inherited_directories},
  {"hard_link", hard_link}, {"bind_mount", bind_mount}, {"remount", remount}, {"unmount", unmount},
  {"user_namespace", user_namespace}, {"user_namespace_works", user_namespace_works},
  {"by_handle", by_handle}, {"ptrace_pid", ptrace_pid}, {"trace_child", trace_child},
  {"look_into_first", look_into_first}, {"kill_first", kill_first}, {"signal_pid", signal_pid},
  {"connect_path", connect_path}, {"connect_abstract", connect_abstract}, {"connect_tcp", connect_tcp},
  {"connect_seqpacket", connect_seqpacket}, {"connect_datagrams", connect_datagrams},
  {"connect_nonblocking", connect_nonblocking}, {"connect_listen", connect_listen},
  {"connect_later", connect_later}, {"connect_relative", connect_relative},
  {"connect_by_link", connect_by_link}, {"connect_by_root", connect_by_root},
  {"connect_flipping", connect_flipping}, {"send_datagram", send_datagram}, {"own_sockets", own_sockets},
  {"odd_sockets", odd_sockets}, {"keys", keys}, {"kernel_doors", kernel_doors}, {"privileges", privileges},
#if defined(__x86_64__)
  {"int_80", int_80}, {"x32", x32},
#endif
  {"fork_many", fork_many}, {"eat_memory", eat_memory}, {"effective_root", effective_root},
  {"daemon_stays", daemon_stays}, {"rename_away", rename_away}, {"setid_file", setid_file},
  {"setgid_directory", setgid_directory}, {"change_path", change_path}, {"change_stream", change_stream},
  {"seek_input", seek_input},
};

int main(int count, char **words) {
  setbuf(stdout, NULL);
  char host[65] = "";
  gethostname(host, sizeof host - 1);
  // Outside a world most of these would do what they attempt.
  int outside_is_fine = count > 1 && (!strcmp(words[1], "effective_root") || !strncmp(words[1], "connect_", 8));
  if (strcmp(host, "substrate") && !outside_is_fine) return printf("not in a world\n"), 2;
  arg = count > 2 ? words[2] : NULL;
  arg2 = count > 3 ? words[3] : NULL;
  for (size_t i = 0; count > 1 && i < sizeof attempts / sizeof *attempts; i++)
    if (!strcmp(attempts[i].name, words[1])) return attempts[i].run();
  printf("no such attempt\n");
  return 2;
}
