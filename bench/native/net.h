/* What every program here needs of sockets and clocks, and the one way in which they fail: a sentence on stderr and
 * exit code 1. */
#ifndef NET_H
#define NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { LENGTH_BYTES = 4 };

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *allocate(size_t size);

uint64_t now_ns(void);
/* The processor time of this process by the time since `started_ns`. */
double cpu_share(uint64_t started_ns);

uint32_t read_u32(const unsigned char *at);
uint64_t read_u64(const unsigned char *at);
void write_u64(unsigned char *at, uint64_t value);

/* A connection without Nagle's delay that blocks nobody; with `tls`, encrypted (tls.h). */
struct wire {
    int fd;
    struct tls *tls;
};

struct wire connect_to(const char *host, int port, bool is_tls);
/* Send once what is taken of `parts`; -1 with EAGAIN where nothing is. */
ssize_t wire_send(const struct wire *wire, const struct iovec *parts, int count);
/* Whether more can be read than the socket says: a TLS record is decrypted as a whole. */
bool wire_has_more(const struct wire *wire);

/* Frames as they come from a connection: four bytes of length, then as many. */
struct inbox {
    unsigned char *bytes;
    size_t capacity, used;
};

/* Read once; false when the other side has closed. */
bool inbox_read(struct inbox *inbox, const struct wire *wire);
/* The next whole frame behind `*position`, which moves on; NULL where none is whole. */
const unsigned char *inbox_next(struct inbox *inbox, size_t *position, size_t *size);
/* Forget what lies before `position`, and have room for the frame that has begun. */
void inbox_keep(struct inbox *inbox, size_t position);

#endif
