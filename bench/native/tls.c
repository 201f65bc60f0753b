#include "tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

#include "net.h"

enum { WANT_READ = 2, WANT_WRITE = 3, SYSCALL = 5, ZERO_RETURN = 6 };
/* SSL_set_mode: SSL_write takes what fits, and its bytes may lie elsewhere when it is asked again. */
enum { CTRL_MODE = 33, PARTIAL_WRITE = 1, MOVING_BUFFER = 2 };

/* What is called of OpenSSL, which calls its connection SSL. */
static struct {
    void *context;
    struct tls *(*make)(void *context);
    int (*set_fd)(struct tls *, int);
    int (*connect)(struct tls *);
    int (*read)(struct tls *, void *, size_t, size_t *);
    int (*write)(struct tls *, const void *, size_t, size_t *);
    int (*pending)(const struct tls *);
    int (*error)(const struct tls *, int);
    long (*control)(struct tls *, int, long, void *);
    void (*free)(struct tls *);
} library;

static void find(void *from, const char *name, void *function) {
    void *found = dlsym(from, name);
    if (!found)
        die("libssl has no %s", name);
    *(void **)function = found;
}

static void load(void) {
    void *from = dlopen("libssl.so.3", RTLD_NOW), *(*method)(void), *(*make_context)(const void *);
    if (!from)
        die("no OpenSSL 3: %s", dlerror());
    find(from, "TLS_client_method", &method);
    find(from, "SSL_CTX_new", &make_context);
    find(from, "SSL_new", &library.make);
    find(from, "SSL_set_fd", &library.set_fd);
    find(from, "SSL_connect", &library.connect);
    find(from, "SSL_read_ex", &library.read);
    find(from, "SSL_write_ex", &library.write);
    find(from, "SSL_pending", &library.pending);
    find(from, "SSL_get_error", &library.error);
    find(from, "SSL_ctrl", &library.control);
    find(from, "SSL_free", &library.free);
    library.context = make_context(method());
    if (!library.context)
        die("OpenSSL makes no context");
}

struct tls *tls_over(int fd) {
    if (!library.context)
        load();
    struct tls *tls = library.make(library.context);
    if (!tls || library.set_fd(tls, fd) != 1)
        die("OpenSSL makes no connection");
    library.control(tls, CTRL_MODE, PARTIAL_WRITE | MOVING_BUFFER, NULL);
    if (library.connect(tls) != 1)
        die("the TLS handshake failed");
    return tls;
}

/* The outcome of a call that moved nothing: -1 with EAGAIN, or 0 where the other side has closed. */
static ssize_t nothing(struct tls *tls, int result) {
    switch (library.error(tls, result)) {
    case WANT_READ:
    case WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case ZERO_RETURN:
        return 0;
    case SYSCALL:
        errno = ECONNRESET;
        return -1;
    default:
        die("what came is not TLS");
    }
}

ssize_t tls_send(struct tls *tls, const void *bytes, size_t size) {
    size_t taken = 0;
    int result = library.write(tls, bytes, size, &taken);
    return result == 1 ? (ssize_t)taken : nothing(tls, result);
}

ssize_t tls_receive(struct tls *tls, void *bytes, size_t size) {
    size_t got = 0;
    int result = library.read(tls, bytes, size, &got);
    return result == 1 ? (ssize_t)got : nothing(tls, result);
}

bool tls_has_more(struct tls *tls) { return library.pending(tls) > 0; }

void tls_close(struct tls *tls, int fd) {
    library.free(tls);
    close(fd);
}
