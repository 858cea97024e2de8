/* A disk that fails, tears writes and loses power, for the files below one folder.
 *
 * Loaded by LD_PRELOAD. Environment:
 *   FAULTY_DISK_FOLDER    absolute; other files are left alone
 *   FAULTY_DISK_ARM       a file; faults happen only while it exists (unset: always)
 *   FAULTY_DISK_SCHEDULE  OP@N=KIND,...: the Nth call of OP; N+ is every call from the Nth on
 *   FAULTY_DISK_SEED      with FAULTY_DISK_PERMILLE: random faults, the same for the same calls
 *   FAULTY_DISK_CUT_AT    lose power at the Nth call while armed
 *   FAULTY_DISK_LOG       a file outside the folder: one line for each fault
 * OP is write, sync, truncate or rename. KIND is eio, enospc, short, torn (half is written, then
 * EIO) or cut (half is written, then power is lost).
 *
 * Loss of power: what was written and not synced is undone, then the process is killed. A sync that
 * fails has lost what it was to sync, as Linux does it: the page cache has the new bytes, a later
 * sync succeeds, and the disk keeps the old ones. Names (create, rename, unlink) count as durable.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum op { WRITE, SYNC, TRUNCATE, RENAME, OPS };
enum kind { NONE, EIO_, ENOSPC_, SHORT, TORN, CUT };
static const char *const op_names[] = {"write", "sync", "truncate", "rename"};
static const char *const kind_names[] = {"none", "eio", "enospc", "short", "torn", "cut"};

struct undo {
    struct undo *next; /* the newest first */
    dev_t dev;
    ino_t ino;
    int fd; /* opened anew, read and write */
    off_t at, old_size;
    size_t length; /* of the old bytes that were overwritten or cut off */
    off_t end;     /* of what was written */
    int lost;      /* its sync failed */
    char *old;
};

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_rename)(const char *, const char *);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_msync)(void *, size_t, int);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder, *arm, *schedule, *log_path;
static unsigned long long state;
static unsigned permille;
static unsigned long cut_at, armed_calls, calls[OPS];
static struct undo *undone;

static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    *(void **)&real_write = find("write");
    *(void **)&real_pwrite = find("pwrite");
    *(void **)&real_pread = find("pread");
    *(void **)&real_fsync = find("fsync");
    *(void **)&real_fdatasync = find("fdatasync");
    *(void **)&real_ftruncate = find("ftruncate");
    *(void **)&real_rename = find("rename");
    *(void **)&real_renameat = find("renameat");
    *(void **)&real_msync = find("msync");
    folder = getenv("FAULTY_DISK_FOLDER");
    arm = getenv("FAULTY_DISK_ARM");
    schedule = getenv("FAULTY_DISK_SCHEDULE");
    log_path = getenv("FAULTY_DISK_LOG");
    const char *value = getenv("FAULTY_DISK_SEED");
    state = value ? strtoull(value, NULL, 10) * 0x9E3779B97F4A7C15ULL + 1 : 0;
    value = getenv("FAULTY_DISK_PERMILLE");
    permille = value ? (unsigned)atoi(value) : 0;
    value = getenv("FAULTY_DISK_CUT_AT");
    cut_at = value ? strtoul(value, NULL, 10) : 0;
}

static unsigned dice(unsigned sides) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 11) % sides);
}

static int below(const char *path) {
    size_t size = folder ? strlen(folder) : 0;
    return size && !strncmp(path, folder, size) && (path[size] == '/' || !path[size]);
}

static int path_of(int fd, char *path, size_t size) {
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* Whether faults of this file are ours; regular files and folders only. */
static int ours(int fd, char *path, size_t size) {
    struct stat status;
    if (!folder || !path_of(fd, path, size) || !below(path)) return 0;
    return !fstat(fd, &status) && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

static void note(enum op op, enum kind kind, const char *path) {
    if (!log_path) return;
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    char line[4400];
    int size = snprintf(line, sizeof line, "%s %s %s\n", op_names[op], kind_names[kind], path);
    if (real_write(fd, line, (size_t)size) < 0) abort();
    close(fd);
}

static enum kind scheduled(enum op op) {
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", schedule);
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        char name[16], kind[16], plus;
        unsigned long number;
        int onward = sscanf(one, "%15[a-z]@%lu%c=%15[a-z]", name, &number, &plus, kind) == 4;
        if (!onward && sscanf(one, "%15[a-z]@%lu=%15[a-z]", name, &number, kind) != 3) abort();
        if (strcmp(name, op_names[op])) continue;
        if (onward ? calls[op] < number : calls[op] != number) continue;
        for (int each = EIO_; each <= CUT; each++)
            if (!strcmp(kind, kind_names[each])) return (enum kind)each;
        abort();
    }
    return NONE;
}

static enum kind fault_of(enum op op, const char *path) {
    enum kind kind = NONE;
    if (arm && access(arm, F_OK)) return NONE;
    armed_calls++;
    calls[op]++;
    if (schedule) kind = scheduled(op);
    if (cut_at && armed_calls == cut_at) kind = CUT;
    if (kind == NONE && permille && dice(1000) < permille)
        kind = op == WRITE ? (enum kind)(EIO_ + dice(4)) : EIO_;
    if (kind != NONE) note(op, kind, path);
    return kind;
}

static off_t size_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_size;
}

static void remember(int fd, off_t at, size_t length, off_t end) {
    struct stat status;
    char name[40];
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) return;
    if (fcntl(fd, F_GETFL) & O_DSYNC) return; /* durable when it returns */
    struct undo *one = calloc(1, sizeof *one);
    one->dev = status.st_dev;
    one->ino = status.st_ino;
    one->fd = -1;
    for (struct undo *other = undone; other && one->fd < 0; other = other->next)
        if (other->dev == one->dev && other->ino == one->ino) one->fd = other->fd;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (one->fd < 0) one->fd = open(name, O_RDWR | O_CLOEXEC);
    if (one->fd < 0) abort();
    one->at = at;
    one->end = end;
    one->old_size = status.st_size;
    one->old = malloc(length ? length : 1);
    ssize_t got = at < status.st_size ? real_pread(one->fd, one->old, length, at) : 0;
    one->length = got > 0 ? (size_t)got : 0;
    one->next = undone;
    undone = one;
}

/* What lost writes would bring back, except where a later write is durable. */
static void spare(struct undo *durable) {
    for (struct undo *one = undone; one; one = one->next) {
        if (!one->lost || one->dev != durable->dev || one->ino != durable->ino) continue;
        off_t from = one->at > durable->at ? one->at : durable->at;
        off_t to = one->at + (off_t)one->length;
        if (durable->end < to) to = durable->end;
        if (from < to &&
            real_pread(one->fd, one->old + (from - one->at), (size_t)(to - from), from) < 0)
            abort();
        if (durable->end > one->old_size) one->old_size = durable->end;
    }
}

static void settle(int fd, int failed) {
    struct stat status;
    if (fstat(fd, &status)) return;
    int used = 0, free_fd = -1;
    for (struct undo **at = &undone; *at;) {
        struct undo *one = *at;
        if (one->dev != status.st_dev || one->ino != status.st_ino) {
            at = &one->next;
        } else if (failed || one->lost) {
            one->lost = 1;
            used = 1;
            at = &one->next;
        } else {
            *at = one->next;
            spare(one);
            free_fd = one->fd;
            free(one->old);
            free(one);
        }
    }
    if (free_fd >= 0 && !used) close(free_fd);
}

static void cut_power(void) {
    for (struct undo *one = undone; one; one = one->next) {
        if (one->length && real_pwrite(one->fd, one->old, one->length, one->at) < 0) abort();
        if (one->old_size != size_of(one->fd) && real_ftruncate(one->fd, one->old_size)) abort();
    }
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static ssize_t put(int fd, const void *data, size_t size, off_t at, int positioned) {
    char path[4096];
    if (!ours(fd, path, sizeof path))
        return positioned ? real_pwrite(fd, data, size, at) : real_write(fd, data, size);
    pthread_mutex_lock(&lock);
    enum kind kind = fault_of(WRITE, path);
    size_t part = kind == NONE ? size : kind >= SHORT ? size / 2 : 0;
    ssize_t done = 0;
    if (part) {
        off_t start = at;
        if (!positioned)
            start = fcntl(fd, F_GETFL) & O_APPEND ? size_of(fd) : lseek(fd, 0, SEEK_CUR);
        remember(fd, start, part, start + (off_t)part);
        done = positioned ? real_pwrite(fd, data, part, at) : real_write(fd, data, part);
    }
    int code = errno;
    if (kind == CUT) cut_power();
    if (kind == EIO_ || kind == TORN || (kind == SHORT && !part)) code = EIO, done = -1;
    if (kind == ENOSPC_) code = ENOSPC, done = -1;
    pthread_mutex_unlock(&lock);
    errno = code;
    return done;
}

ssize_t write(int fd, const void *data, size_t size) { return put(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return put(fd, data, size, at, 1);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return put(fd, data, size, at, 1);
}

static ssize_t put_all(int fd, const struct iovec *parts, int count, off_t at, int positioned) {
    size_t size = 0;
    for (int each = 0; each < count; each++) size += parts[each].iov_len;
    char *data = malloc(size ? size : 1), *end = data;
    for (int each = 0; each < count; each++)
        end = mempcpy(end, parts[each].iov_base, parts[each].iov_len);
    ssize_t done = put(fd, data, size, at, positioned);
    int code = errno;
    free(data);
    errno = code;
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return put_all(fd, parts, count, 0, 0);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return put_all(fd, parts, count, at, 1);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return put_all(fd, parts, count, at, 1);
}

static int sync_by(int (*real)(int), int fd) {
    char path[4096];
    if (!ours(fd, path, sizeof path)) return real(fd);
    pthread_mutex_lock(&lock);
    enum kind kind = fault_of(SYNC, path);
    if (kind == CUT) cut_power();
    int done = kind == NONE ? real(fd) : -1;
    int code = kind == NONE ? errno : EIO;
    settle(fd, done != 0);
    pthread_mutex_unlock(&lock);
    errno = code;
    return done;
}

int fsync(int fd) { return sync_by(real_fsync, fd); }
int fdatasync(int fd) { return sync_by(real_fdatasync, fd); }

int ftruncate(int fd, off_t size) {
    char path[4096];
    if (!ours(fd, path, sizeof path)) return real_ftruncate(fd, size);
    pthread_mutex_lock(&lock);
    enum kind kind = fault_of(TRUNCATE, path);
    if (kind == CUT) cut_power();
    int done = -1, code = EIO;
    if (kind == NONE) {
        off_t before = size_of(fd);
        remember(fd, size, before > size ? (size_t)(before - size) : 0, size);
        done = real_ftruncate(fd, size);
        code = errno;
    }
    pthread_mutex_unlock(&lock);
    errno = code;
    return done;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

static int fails_to_rename(const char *path) {
    char whole[4096];
    if (path[0] != '/' && getcwd(whole, sizeof whole / 2)) {
        size_t size = strlen(whole);
        snprintf(whole + size, sizeof whole - size, "/%s", path);
        path = whole;
    }
    if (!folder || !below(path)) return 0;
    pthread_mutex_lock(&lock);
    enum kind kind = fault_of(RENAME, path);
    if (kind == CUT) cut_power();
    pthread_mutex_unlock(&lock);
    return kind != NONE;
}

int rename(const char *from, const char *to) {
    if (!fails_to_rename(to)) return real_rename(from, to);
    errno = EIO;
    return -1;
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
    if (to[0] == '/' && fails_to_rename(to)) {
        errno = EIO;
        return -1;
    }
    return real_renameat(from_at, from, to_at, to);
}

/* Of a map nobody knows which file is behind it without reading /proc: one below the folder fails
 * as a sync does. */
int msync(void *at, size_t size, int flags) {
    FILE *maps = folder ? fopen("/proc/self/maps", "re") : NULL;
    char line[4400], *path = NULL;
    while (maps && !path && fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        if (sscanf(line, "%lx-%lx", &low, &high) == 2 && low <= (unsigned long)at &&
            (unsigned long)at < high && (path = strchr(line, '/')))
            path[strcspn(path, "\n")] = 0;
    }
    if (maps) fclose(maps);
    if (path && below(path)) {
        pthread_mutex_lock(&lock);
        enum kind kind = fault_of(SYNC, path);
        if (kind == CUT) cut_power();
        pthread_mutex_unlock(&lock);
        if (kind != NONE) {
            errno = EIO;
            return -1;
        }
    }
    return real_msync(at, size, flags);
}
