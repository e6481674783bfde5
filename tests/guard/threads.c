/* Four threads start a program at the same moment: one does, which ends the others. Prints how many of
 * so many processes ended otherwise than the program does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t go;

static void *start(void *other) {
  char *words[] = {"true", NULL};
  pthread_barrier_wait(&go);
  execv(other ? "/bin/echo" : "/bin/true", words);
  return NULL;
}

int main(int count, char **words) {
  int rounds = count > 1 ? atoi(words[1]) : 1, wrong = 0;
  for (int round = 0; round < rounds; round++) {
    pid_t child = fork();
    if (child == 0) {
      pthread_t thread;
      pthread_barrier_init(&go, NULL, 4);
      for (int number = 0; number < 3; number++)
        pthread_create(&thread, NULL, start, number % 2 ? "" : NULL);
      start(NULL);
      pause();
    }
    int status;
    waitpid(child, &status, 0);
    wrong += status != 0;
  }
  printf("%d wrong\n", wrong);
  return 0;
}
