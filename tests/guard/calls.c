/* Starts `rm -rf victim` in ways that shells do not. Linked statically. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *ARGV[] = {"q", "-rf", "victim", 0};
static char *ENV[] = {"PATH=/bin", 0};

static void start(void) {
  execve("/bin/rm", ARGV, ENV);
  perror("execve");
}

static void *in_thread(void *unused) {
  (void)unused;
  start();
  return 0;
}

static int filter(unsigned flags) {
  struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {1, all};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  if (!strcmp(how, "exec")) start();
  if (!strcmp(how, "vfork")) {
    pid_t child = vfork();
    if (child == 0) {
      execve("/bin/rm", ARGV, ENV);
      _exit(1);
    }
    waitpid(child, 0, 0);
  }
  if (!strcmp(how, "thread")) {
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
  }
  if (!strcmp(how, "at")) {
    int directory = open("/bin", O_PATH | O_DIRECTORY);
    syscall(SYS_execveat, directory, "rm", ARGV, ENV, 0);
    int file = open("/bin/rm", O_PATH);
    syscall(SYS_execveat, file, "", ARGV, ENV, AT_EMPTY_PATH);
  }
  if (!strcmp(how, "memfd")) {
    static char block[1 << 20];
    int memory = syscall(SYS_memfd_create, "q", 0), file = open("/bin/rm", O_RDONLY);
    ssize_t got = read(file, block, sizeof block);
    if (write(memory, block, got) != got) return 1;
    syscall(SYS_execveat, memory, "", ARGV, ENV, AT_EMPTY_PATH);
  }
  if (!strcmp(how, "empty")) {
    char *words[] = {"", "-rf", "victim", 0};
    execve("/bin/rm", words, ENV);
  }
  if (!strcmp(how, "unreadable")) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    start();
  }
  if (!strcmp(how, "traced")) {
    pid_t child = fork();
    if (child == 0) {
      ptrace(PTRACE_TRACEME, 0, 0, 0);
      start();
      _exit(1);
    }
    int status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) ptrace(PTRACE_CONT, child, 0, 0);
  }
  if (!strcmp(how, "filter")) {
    filter(0);
    start();
  }
  if (!strcmp(how, "listener")) {
    if (filter(SECCOMP_FILTER_FLAG_NEW_LISTENER) < 0) perror("listener");
    start();
  }
#ifdef __x86_64__
  if (!strcmp(how, "int80")) {
    /* Addresses have to fit in 32 bits. */
    char *low = mmap((void *)0x10000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (low == MAP_FAILED) return 1;
    strcpy(low, "/bin/rm");
    strcpy(low + 16, "-rf");
    strcpy(low + 32, "victim");
    unsigned words[] = {(unsigned)(unsigned long)low, (unsigned)(unsigned long)(low + 16),
                        (unsigned)(unsigned long)(low + 32), 0};
    memcpy(low + 64, words, sizeof words);
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(11L), "b"(low), "c"(low + 64), "d"(0L) : "memory");
    printf("int80: %ld\n", result);
  }
  if (!strcmp(how, "x32")) {
    unsigned words[4] = {0};
    printf("x32: %ld\n", syscall(0x40000000L | 520, "/bin/rm", words, words));
  }
#endif
  return 0;
}
