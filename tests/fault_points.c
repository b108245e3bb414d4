/* Ends the process, or fills its disk, at one of the calls that change files: see test_fault_injection.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, KILL, FULL };
static int fault, full;
static long at, count;
static char folder[4096];

/* Files of `directory` count: at call number `point`, from 0, the fault comes. */
void fault_begin(const char *directory, int kind, long point) {
  strncpy(folder, directory, sizeof folder - 1);
  fault = kind, at = point, count = 0, full = 0;
}

long fault_count(void) { return count; }

static int inside(const char *path) {
  return folder[0] && (path[0] != '/' || !strncmp(path, folder, strlen(folder)));
}

static int open_inside(int file) {
  char link[64], path[4096];
  if (!folder[0]) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return path[0] == '/' && inside(path);
}

/* Counts a call; returns 1 if it must fail. `half` does what it leaves behind when it is cut short. */
#define MEETS(is_inside, adds, half)                       \
  ((is_inside) && ({                                       \
     int here = __sync_fetch_and_add(&count, 1) == at;     \
     if (here && fault) {                                  \
       half;                                               \
       if (fault == KILL) raise(SIGKILL);                  \
       full = 1;                                           \
     }                                                     \
     int fails = fault && (here || (full && (adds)));      \
     if (fails) errno = ENOSPC;                            \
     fails;                                                \
   }))

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) {
  if (MEETS(open_inside(file), 1, REAL(write)(file, data, size / 2))) return -1;
  return REAL(write)(file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
  if (MEETS(open_inside(file), 1, REAL(pwrite)(file, data, size / 2, place))) return -1;
  return REAL(pwrite)(file, data, size, place);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) {
  if (MEETS(open_inside(file), 1, REAL(pwrite64)(file, data, size / 2, place))) return -1;
  return REAL(pwrite64)(file, data, size, place);
}
ssize_t writev(int file, const struct iovec *parts, int number) {
  if (MEETS(open_inside(file), 1, )) return -1;
  return REAL(writev)(file, parts, number);
}
ssize_t sendfile64(int out, int in, off64_t *place, size_t size) {
  static ssize_t (*real)(int, int, off64_t *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "sendfile64");
  if (MEETS(open_inside(out), 1, )) return -1;
  return real(out, in, place, size);
}
size_t fwrite(const void *data, size_t size, size_t number, FILE *file) {
  if (MEETS(open_inside(fileno(file)), 1,
            (REAL(fwrite)(data, 1, size * number / 2, file), REAL(fflush)(file))))
    return 0;
  return REAL(fwrite)(data, size, number, file);
}
int fflush(FILE *file) {
  if (MEETS(file && open_inside(fileno(file)), 1, )) return EOF;
  return REAL(fflush)(file);
}
int fclose(FILE *file) {
  if (MEETS(open_inside(fileno(file)), 0, )) return REAL(fclose)(file), errno = ENOSPC, EOF;
  return REAL(fclose)(file);
}
int ftruncate(int file, off_t size) {
  if (MEETS(open_inside(file), 0, )) return -1;
  return REAL(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size) {
  if (MEETS(open_inside(file), 0, )) return -1;
  return REAL(ftruncate64)(file, size);
}
int fsync(int file) {
  if (MEETS(open_inside(file), 0, )) return -1;
  return REAL(fsync)(file);
}
int fdatasync(int file) {
  if (MEETS(open_inside(file), 0, )) return -1;
  return REAL(fdatasync)(file);
}
int rename(const char *old, const char *new) {
  if (MEETS(inside(new), 0, )) return -1;
  return REAL(rename)(old, new);
}
int renameat(int from, const char *old, int to, const char *new) {
  if (MEETS(inside(new), 0, )) return -1;
  return REAL(renameat)(from, old, to, new);
}
int link(const char *old, const char *new) {
  if (MEETS(inside(new), 1, )) return -1;
  return REAL(link)(old, new);
}
int symlink(const char *old, const char *new) {
  if (MEETS(inside(new), 1, )) return -1;
  return REAL(symlink)(old, new);
}
int unlink(const char *path) {
  if (MEETS(inside(path), 0, )) return -1;
  return REAL(unlink)(path);
}
int unlinkat(int directory, const char *path, int flags) {
  if (MEETS(directory == AT_FDCWD ? inside(path) : open_inside(directory), 0, )) return -1;
  return REAL(unlinkat)(directory, path, flags);
}
int rmdir(const char *path) {
  if (MEETS(inside(path), 0, )) return -1;
  return REAL(rmdir)(path);
}
int mkdir(const char *path, mode_t mode) {
  if (MEETS(inside(path), 1, )) return -1;
  return REAL(mkdir)(path, mode);
}
