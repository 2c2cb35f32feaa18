/* Preloaded into a program of a test: its machine knows no IPv6. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int socket(int family, int kind, int protocol) {
  static int (*real)(int, int, int);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "socket");
  if (family == AF_INET6) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  return real(family, kind, protocol);
}
