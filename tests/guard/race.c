/* One thread starts a program while another changes what is to be started, or with a second argument in which
 * environment. `harmless` and `forbidden`
 * are two names of one program, this one: it ends with 0, and with 66 when it should not have run. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64] = "./harmless";
static char word[64] = "status-";
static char setting[32] = "GIT_CONFIG_COUNT=";
static volatile int words, settings;

static void *flip(void *unused) {
  (void)unused;
  for (;;) {
    if (settings) setting[17] = '1';
    else if (words) memcpy(word, "danger-", 7);
    else memcpy(path, "./forbid", 8), memcpy(path + 8, "den", 4);
    for (volatile int i = 0; i < 300; i++) {}
    if (settings) setting[17] = 0;
    else if (words) memcpy(word, "status-", 7);
    else memcpy(path, "./harmless", 11);
    for (volatile int i = 0; i < 300; i++) {}
  }
  return 0;
}

int main(int argc, char **argv) {
  const char *name = strrchr(argv[0], '/');
  name = name ? name + 1 : argv[0];
  if (!strcmp(name, "started")) {
    char file[512] = "";
    if (readlink("/proc/self/exe", file, sizeof file - 1) < 0) return 67;
    const char *set = getenv("GIT_CONFIG_COUNT");
    return (set && *set) || strstr(argv[1], "danger") || strstr(file, "forbidden") ? 66 : 0;
  }
  int rounds = argc > 1 ? atoi(argv[1]) : 1, fine = 0, forbidden = 0, refused = 0, killed = 0;
  for (int i = 0; i < rounds; i++) {
    pid_t child = fork();
    if (child == 0) {
      pthread_t thread;
      words = i % 2;
      settings = argc > 2;
      char *around[] = {setting, 0};
      pthread_create(&thread, 0, flip, 0);
      for (volatile int j = 0; j < 1000 * (i % 7); j++) {}
      char *arguments[] = {"started", word, 0};
      execve(path, arguments, settings ? around : environ);
      _exit(111);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) killed++;
    else if (WEXITSTATUS(status) == 0) fine++;
    else if (WEXITSTATUS(status) == 66) forbidden++;
    else refused++;
  }
  printf("rounds %d fine %d forbidden %d refused %d killed %d\n", rounds, fine, forbidden, refused, killed);
  return 0;
}
