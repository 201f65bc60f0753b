/* TLS over a connected socket, by the machine's OpenSSL 3, which is loaded when it is first asked for: the programs here
 * are compiled without its headers.  The broker's certificate is not looked at. */
#ifndef TLS_H
#define TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls;

/* Shake hands on a blocking socket: a full handshake, never a resumed one. */
struct tls *tls_over(int fd);
/* As send and recv do on a socket that does not block. */
ssize_t tls_send(struct tls *tls, const void *bytes, size_t size);
ssize_t tls_receive(struct tls *tls, void *bytes, size_t size);
bool tls_has_more(struct tls *tls);
/* Forget the connection; its socket is closed. */
void tls_close(struct tls *tls, int fd);

#endif
