// Refuses the n-th call of one kind in the processes that it is loaded into (LD_PRELOAD), as a control file says.
//
// The file, which VISPARK_REFUSE names, is mapped: { role, call, countdown, error, hits }. A process has role 1 if it is a
// device process, 2 if it is a daemon. The call that counts `countdown` down to 0 fails with `error`, once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MMAP = 1, MEMALIGN, MEMFD, TRUNCATE, WRITE, PWRITE, SENDMSG, RECVMSG, THREAD, ACCEPT, OPEN, DUP, EPOLL, SOCKET, SOCKETPAIR, PIPE,
       MALLOC, FORK };

// An allocation that counts: what is smaller is found in memory that the process has already.
#define LARGE ((size_t)32 << 10)

struct control { int role, call, countdown, error, hits; };
static struct control *control;
static int role;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("VISPARK_REFUSE");
    char text[4096];
    int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    if (!path || file < 0)
        return;
    ssize_t size = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    text[size > 0 ? size : 0] = 0;
    for (ssize_t i = 0; i + 1 < size; i++)
        if (!text[i])
            text[i] = ' ';
    role = strstr(text, "gpu_worker.server.device_process") ? 1 : strstr(text, "gpu_worker start") ? 2 : 0;
    if (!role)
        return;
    file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    void *memory = (void *)syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (memory != MAP_FAILED)
        control = memory;
}

static int refused(int call)
{
    if (!control || control->call != call || control->role != role)
        return 0;
    if (__atomic_sub_fetch(&control->countdown, 1, __ATOMIC_SEQ_CST) != 0)
        return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
    return control->error;
}

#define FAIL(call, failure) do { int error = refused(call); if (error) { errno = error; return failure; } } while (0)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{ FAIL(MMAP, MAP_FAILED); return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset); }
void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset)
{ FAIL(MMAP, MAP_FAILED); return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset); }
int posix_memalign(void **place, size_t alignment, size_t size)
{ int error = refused(MEMALIGN); return error ? error : NEXT(posix_memalign)(place, alignment, size); }
int memfd_create(const char *name, unsigned flags) { FAIL(MEMFD, -1); return NEXT(memfd_create)(name, flags); }
int ftruncate(int file, off_t size) { FAIL(TRUNCATE, -1); return NEXT(ftruncate)(file, size); }
int ftruncate64(int file, off_t size) { FAIL(TRUNCATE, -1); return NEXT(ftruncate)(file, size); }
ssize_t write(int file, const void *data, size_t size) { FAIL(WRITE, -1); return NEXT(write)(file, data, size); }
ssize_t pwrite64(int file, const void *data, size_t size, off_t at)
{ FAIL(PWRITE, -1); return NEXT(pwrite)(file, data, size, at); }
ssize_t sendmsg(int sock, const struct msghdr *message, int flags)
{ FAIL(SENDMSG, -1); return NEXT(sendmsg)(sock, message, flags); }
ssize_t recvmsg(int sock, struct msghdr *message, int flags)
{ FAIL(RECVMSG, -1); return NEXT(recvmsg)(sock, message, flags); }
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{ int error = refused(THREAD); return error ? error : NEXT(pthread_create)(thread, attributes, run, argument); }
int accept4(int sock, struct sockaddr *address, socklen_t *size, int flags)
{ FAIL(ACCEPT, -1); return NEXT(accept4)(sock, address, size, flags); }
int epoll_ctl(int file, int what, int other, struct epoll_event *event)
{ FAIL(EPOLL, -1); return (int)syscall(SYS_epoll_ctl, file, what, other, event); }
int fcntl64(int file, int what, ...)
{
    va_list rest;
    va_start(rest, what);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (what == F_DUPFD_CLOEXEC)
        FAIL(DUP, -1);
    return (int)syscall(SYS_fcntl, file, what, argument);
}
int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    FAIL(OPEN, -1);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int socket(int family, int kind, int protocol) { FAIL(SOCKET, -1); return NEXT(socket)(family, kind, protocol); }
int socketpair(int family, int kind, int protocol, int ends[2])
{ FAIL(SOCKETPAIR, -1); return NEXT(socketpair)(family, kind, protocol, ends); }
int pipe2(int ends[2], int flags) { FAIL(PIPE, -1); return NEXT(pipe2)(ends, flags); }
// Of the C library itself, as dlsym allocates.
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t size)
{ if (size >= LARGE) FAIL(MALLOC, NULL); return __libc_malloc(size); }
void *calloc(size_t count, size_t size)
{ if (count && size >= LARGE / count) FAIL(MALLOC, NULL); return __libc_calloc(count, size); }
void *realloc(void *place, size_t size)
{ if (size >= LARGE) FAIL(MALLOC, NULL); return __libc_realloc(place, size); }
#ifdef __x86_64__
// Python starts programs by vfork, whose caller returns twice: it is jumped to, from a frame that is gone.
__attribute__((visibility("hidden"))) void *vfork_refused(void)
{
    int error = refused(FORK);
    if (error)
        errno = error;
    return error ? NULL : dlsym(RTLD_NEXT, "vfork");
}
__asm__(".globl vfork\n.type vfork, @function\nvfork:\n"
        "subq $8, %rsp\ncall vfork_refused\naddq $8, %rsp\ntestq %rax, %rax\njz 1f\njmp *%rax\n"
        "1: movq $-1, %rax\nret\n");
#endif
