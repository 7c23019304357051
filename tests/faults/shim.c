/* Preloaded into a process: something happens at its n-th call that changes a folder.

   `fault_arm(folder, n, how)` starts the count, in this process and in none that it starts; `fault_count()` is how many
   calls there were. Calls are counted if they concern a path below the folder, or a descriptor of one.

   how: KILL    ends the process before the call
        TORN    ends it after half of a write, and before any other call
        FULL    lets this call and all later ones that need room on the disk fail with ENOSPC
        FAIL    lets this call alone fail with EIO
        n > 0   sends the process the signal n before the call */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL = 0, TORN = -1, FULL = -2, FAIL = -3 };

static char watched[PATH_MAX];
static size_t length;
static long at = -1, seen;
static int how;
static pid_t armed_in;

void fault_arm(const char *folder, long number, int kind) {
    length = strlen(strcpy(watched, folder));
    at = number;
    how = kind;
    seen = 0;
    armed_in = getpid();
}

long fault_count(void) { return seen; }

/* Whether a path, relative to a descriptor, lies below the folder. */
static int concerns(int folder, const char *path) {
    char whole[2 * PATH_MAX];
    size_t used = 0;
    if (length == 0 || getpid() != armed_in) return 0;
    if (path[0] != '/') {
        char link[64];
        ssize_t got;
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        got = readlink(link, whole, PATH_MAX);
        if (got < 0) return 0;
        used = got;
        whole[used++] = '/';
    }
    snprintf(whole + used, sizeof whole - used, "%s", path);
    return strncmp(whole, watched, length) == 0 && whole[length] == '/';
}

static int holds(int descriptor) { return concerns(descriptor, ""); }

/* What happens now: 0 the call itself, else what it is to fail with. `room`: whether it needs some on the disk. */
static int fault(int room) {
    long number = seen++;
    if (how == FULL) return room && number >= at ? ENOSPC : 0;
    if (number != at) return 0;
    if (how == FAIL) return EIO;
    if (how > 0) {
        raise(how);
        return 0;
    }
    raise(SIGKILL);
    return 0;
}

static int tears(void) { return how == TORN && seen == at; }

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define AT_RISK(counts, room) do { \
        int said = (counts) ? fault(room) : 0; \
        if (said) { errno = said; return -1; } \
    } while (0)

int rename(const char *a, const char *b) {
    REAL(rename);
    AT_RISK(concerns(AT_FDCWD, a) || concerns(AT_FDCWD, b), 0);
    return real(a, b);
}
int renameat(int f, const char *a, int g, const char *b) {
    REAL(renameat);
    AT_RISK(concerns(f, a) || concerns(g, b), 0);
    return real(f, a, g, b);
}
int link(const char *a, const char *b) {
    REAL(link);
    AT_RISK(concerns(AT_FDCWD, b), 1);
    return real(a, b);
}
int unlink(const char *path) {
    REAL(unlink);
    AT_RISK(concerns(AT_FDCWD, path), 0);
    return real(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    AT_RISK(concerns(folder, path), 0);
    return real(folder, path, flags);
}
int rmdir(const char *path) {
    REAL(rmdir);
    AT_RISK(concerns(AT_FDCWD, path), 0);
    return real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    AT_RISK(concerns(AT_FDCWD, path), 1);
    return real(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    AT_RISK(concerns(folder, path), 1);
    return real(folder, path, mode);
}
int fsync(int descriptor) {
    REAL(fsync);
    AT_RISK(holds(descriptor), 1);
    return real(descriptor);
}
int ftruncate64(int descriptor, off64_t size) {
    REAL(ftruncate64);
    AT_RISK(holds(descriptor), 1);
    return real(descriptor, size);
}
int chmod(const char *path, mode_t mode) {
    REAL(chmod);
    AT_RISK(concerns(AT_FDCWD, path), 0);
    return real(path, mode);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(write);
    if (length && holds(descriptor)) {
        if (tears()) {
            (void)!real(descriptor, data, size / 2);
            raise(SIGKILL);
        }
        AT_RISK(1, 1);
    }
    return real(descriptor, data, size);
}
size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    REAL(fwrite);
    if (length && holds(fileno(file))) {
        int said = fault(1);
        if (said) {
            errno = said;
            return 0;
        }
    }
    return real(data, size, count, file);
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) {
    REAL(sendfile64);
    AT_RISK(holds(out), 1);
    return real(out, in, offset, size);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    REAL(sendfile);
    AT_RISK(holds(out), 1);
    return real(out, in, offset, size);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    REAL(copy_file_range);
    AT_RISK(holds(out), 1);
    return real(in, from, out, to, size, flags);
}

#define OPEN(name, folder, path) \
    mode_t mode = 0; \
    if (flags & O_CREAT) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    } \
    REAL(name); \
    AT_RISK((flags & (O_CREAT | O_TRUNC)) && concerns(folder, path), 1);

int open(const char *path, int flags, ...) { OPEN(open, AT_FDCWD, path) return real(path, flags, mode); }
int open64(const char *path, int flags, ...) { OPEN(open64, AT_FDCWD, path) return real(path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder, path) return real(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder, path) return real(folder, path, flags, mode); }
