#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "tls.h"

enum { INBOX_BYTES = 256 * 1024, FRAME_BYTES_MAX = 256 * 1024 * 1024, SEND_BUFFER_BYTES = 4 * 1024 * 1024 };

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void *allocate(size_t size) {
    void *made = calloc(1, size ? size : 1);
    if (!made)
        die("no memory for %zu bytes", size);
    return made;
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double cpu_share(uint64_t started_ns) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double used = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                  (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    return used / ((double)(now_ns() - started_ns) / 1e9);
}

uint32_t read_u32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

uint64_t read_u64(const unsigned char *at) { return (uint64_t)read_u32(at) << 32 | read_u32(at + 4); }

void write_u64(unsigned char *at, uint64_t value) {
    for (int index = 7; index >= 0; index--, value >>= 8)
        at[index] = (unsigned char)value;
}

struct wire connect_to(const char *host, int port, bool is_tls) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("%s is no IPv4 address", host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("cannot connect to %s:%d: %s", host, port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* The kernel's first size is too small for a request of a megabyte to leave in few calls. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){SEND_BUFFER_BYTES}, sizeof(int));
    struct wire wire = {.fd = fd, .tls = is_tls ? tls_over(fd) : NULL};
    if (fcntl(fd, F_SETFL, O_NONBLOCK))
        die("cannot make a socket non-blocking: %s", strerror(errno));
    return wire;
}

ssize_t wire_send(const struct wire *wire, const struct iovec *parts, int count) {
    if (wire->tls)
        return tls_send(wire->tls, parts->iov_base, parts->iov_len);
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    return sendmsg(wire->fd, &message, MSG_NOSIGNAL);
}

bool wire_has_more(const struct wire *wire) { return wire->tls && tls_has_more(wire->tls); }

bool inbox_read(struct inbox *inbox, const struct wire *wire) {
    if (!inbox->bytes) {
        inbox->capacity = INBOX_BYTES;
        inbox->bytes = allocate(inbox->capacity);
    }
    unsigned char *free_bytes = inbox->bytes + inbox->used;
    size_t room = inbox->capacity - inbox->used;
    ssize_t got = wire->tls ? tls_receive(wire->tls, free_bytes, room) : recv(wire->fd, free_bytes, room, 0);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return true;
        if (errno == ECONNRESET)
            return false;
        die("recv: %s", strerror(errno));
    }
    inbox->used += (size_t)got;
    return got > 0;
}

const unsigned char *inbox_next(struct inbox *inbox, size_t *position, size_t *size) {
    if (inbox->used - *position < LENGTH_BYTES)
        return NULL;
    size_t length = read_u32(inbox->bytes + *position);
    if (length > FRAME_BYTES_MAX)
        die("a frame of %zu bytes", length);
    if (inbox->used - *position < LENGTH_BYTES + length)
        return NULL;
    const unsigned char *frame = inbox->bytes + *position + LENGTH_BYTES;
    *position += LENGTH_BYTES + length;
    *size = length;
    return frame;
}

void inbox_keep(struct inbox *inbox, size_t position) {
    if (position) {
        memmove(inbox->bytes, inbox->bytes + position, inbox->used - position);
        inbox->used -= position;
    }
    if (inbox->used < LENGTH_BYTES)
        return;
    size_t wanted = LENGTH_BYTES + (size_t)read_u32(inbox->bytes);
    if (wanted > inbox->capacity) {
        inbox->bytes = realloc(inbox->bytes, wanted);
        if (!inbox->bytes)
            die("no memory for a frame of %zu bytes", wanted);
        inbox->capacity = wanted;
    }
}
