/* Runs a server of a test whose children can be made not to end, however they are killed: what a process looks like that hangs
 * in the kernel.
 *
 *   stuck_exit FILE PROGRAM ARGUMENTS...
 *
 * Once FILE names process ids, each of them stops in the middle of its exit until FILE is gone; FILE.held says that this is
 * arranged. Only an ancestor may do that to a process everywhere, so the server is a child of this program, which hands SIGTERM
 * on to it and ends as it does. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIDS_MAX 16

static volatile sig_atomic_t server;

static void hand_on(int number) {
  if (server > 0) kill((pid_t)server, number);
}

static int hold(const char *file, pid_t *pids) {
  FILE *named = fopen(file, "r");
  if (!named) return 0;
  int count = 0;
  while (count < PIDS_MAX && fscanf(named, "%d", &pids[count]) == 1) {
    if (ptrace(PTRACE_SEIZE, pids[count], NULL, (void *)PTRACE_O_TRACEEXIT)) perror("stuck_exit: a process cannot be held");
    else count++;
  }
  fclose(named);
  char told[4096];
  snprintf(told, sizeof told, "%s.held", file);
  FILE *held = fopen(told, "w");
  if (held) fclose(held);
  return count;
}

/* Those that stopped elsewhere go on at once; those in their exit wait for the end of the file. */
static void let_go(pid_t *pids, int count) {
  for (int at = 0; at < count; at++) ptrace(PTRACE_CONT, pids[at], NULL, NULL);
}

int main(int count, char **arguments) {
  if (count < 3) return 64;
  pid_t started = fork();
  if (started < 0) return 71;
  if (started == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(arguments[2], arguments + 2);
    _exit(127);
  }
  server = started;
  signal(SIGTERM, hand_on);
  pid_t pids[PIDS_MAX];
  int held = 0;
  struct timespec look = {0, 20 * 1000 * 1000};
  for (;;) {
    int status;
    pid_t ended;
    while ((ended = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
      if (ended == started && (WIFEXITED(status) || WIFSIGNALED(status)))
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      int in_exit = WIFSTOPPED(status) && status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8));
      if (WIFSTOPPED(status) && !in_exit) {
        int number = status >> 16 ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_CONT, ended, NULL, (void *)(long)number);
      }
    }
    if (held == 0) held = hold(arguments[1], pids);
    else if (access(arguments[1], F_OK)) let_go(pids, held);
    nanosleep(&look, NULL);
  }
}
