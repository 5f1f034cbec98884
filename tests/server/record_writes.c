/* Records every call of a process that changes files below a folder, in order, so that a power cut can be simulated.

   cc -shared -fPIC -O1 -o record_writes.so record_writes.c -ldl
   LD_PRELOAD=record_writes.so RECORD_BELOW=/folder RECORD_TO=/other/log program

   A record is: one byte for the call, then three 64-bit numbers (inode, offset, length) and the bytes. For a call on a name
   the bytes are the path, and for a rename both paths with a NUL between them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static const char *below;

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static ssize_t raw_write(int fd, const void *data, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    return real(fd, data, n);
}

__attribute__((constructor)) static void start(void) {
    const char *to = getenv("RECORD_TO");
    below = getenv("RECORD_BELOW");
    if (to && below) {
        REAL(int, open, const char *, int, ...);
        log_fd = real(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
}

static void record(char call, uint64_t inode, uint64_t offset, const void *data, uint64_t n) {
    uint64_t numbers[3] = {inode, offset, n};
    if (log_fd < 0) return;
    raw_write(log_fd, &call, 1);
    raw_write(log_fd, numbers, sizeof numbers);
    if (n) raw_write(log_fd, data, n);
}

/* Return the inode of a descriptor below the folder; 0 for any other. */
static uint64_t inode_of(int fd) {
    char link[64], path[4096];
    struct stat about;
    ssize_t n;
    if (log_fd < 0 || fd == log_fd) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    if (strncmp(path, below, strlen(below)) || fstat(fd, &about)) return 0;
    return about.st_ino;
}

static int is_below(const char *path) { return log_fd >= 0 && !strncmp(path, below, strlen(below)); }

static void opened(const char *path, int flags, int fd, int existed) {
    struct stat about;
    if (fd < 0 || !is_below(path) || fstat(fd, &about)) return;
    if (!existed) record('c', about.st_ino, 0, path, strlen(path));
    else if (flags & O_TRUNC) record('t', about.st_ino, 0, "", 0);
    else record('o', about.st_ino, S_ISDIR(about.st_mode), path, strlen(path));
}

/* A call and its record are one step for all threads: a sync must not seem to cover a write that began after it. */
#define BEGIN pthread_mutex_lock(&turn)
#define END pthread_mutex_unlock(&turn)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        REAL(int, name, const char *, int, ...); \
        BEGIN; \
        int existed = is_below(path) ? !access(path, F_OK) : 1; \
        int fd = real(path, flags, mode); \
        opened(path, flags, fd, existed); \
        END; \
        return fd; \
    }
OPEN(open)
OPEN(open64)

#define PWRITE(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t n, offset_type at) { \
        REAL(ssize_t, name, int, const void *, size_t, offset_type); \
        BEGIN; \
        ssize_t done = real(fd, data, n, at); \
        uint64_t inode = done > 0 ? inode_of(fd) : 0; \
        if (inode) { record('w', inode, at, data, done); } \
        END; \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t n) {
    BEGIN;
    ssize_t done = raw_write(fd, data, n);
    uint64_t inode = done > 0 ? inode_of(fd) : 0;
    if (inode) { record('w', inode, lseek(fd, 0, SEEK_CUR) - done, data, done); }
    END;
    return done;
}

#define CHANGE(name, call, offset, parameters, ...) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) { real = (int (*) parameters)dlsym(RTLD_NEXT, #name); } \
        BEGIN; \
        int failed = real(__VA_ARGS__); \
        uint64_t inode = failed ? 0 : inode_of(fd); \
        if (inode) { record(call, inode, offset, "", 0); } \
        END; \
        return failed; \
    }
CHANGE(ftruncate, 't', size, (int fd, off_t size), fd, size)
CHANGE(ftruncate64, 't', size, (int fd, off64_t size), fd, size)
CHANGE(fsync, 's', 0, (int fd), fd)
CHANGE(fdatasync, 's', 0, (int fd), fd)

int rename(const char *from, const char *to) {
    char both[8192];
    REAL(int, rename, const char *, const char *);
    BEGIN;
    int failed = real(from, to);
    if (!failed && is_below(to)) { record('r', 0, 0, both, snprintf(both, sizeof both, "%s%c%s", from, 0, to)); }
    END;
    return failed;
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    BEGIN;
    int failed = real(path);
    if (!failed && is_below(path)) { record('u', 0, 0, path, strlen(path)); }
    END;
    return failed;
}

int mkdir(const char *path, mode_t mode) {
    struct stat about;
    REAL(int, mkdir, const char *, mode_t);
    BEGIN;
    int failed = real(path, mode);
    if (!failed && is_below(path) && !stat(path, &about)) { record('d', about.st_ino, 0, path, strlen(path)); }
    END;
    return failed;
}
