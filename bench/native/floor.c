/* The floor: what a server costs on this machine that is no broker.  It cuts frames out of the stream, writes each with
 * one pwrite behind the last one of its connection, and answers them all with the same reply.  Nothing is looked at.
 *
 *     floor DIRECTORY REPLY
 *
 * REPLY is a whole reply frame in hexadecimal.  The port is printed on stdout; each connection's frames go to a file of
 * their own in DIRECTORY.  It runs until it is killed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job.h"
#include "net.h"

enum { EVENTS_MAX = 64, REPLIES_MAX = 4096 };

struct connection {
    struct wire wire;
    int file;
    off_t written;
    struct inbox inbox;
};

static unsigned char *reply;
static size_t reply_bytes;

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        die("cannot listen: %s", strerror(errno));
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void accept_connection(int poller, int listener, const char *directory) {
    static unsigned number;
    char path[4096];
    struct connection *connection = allocate(sizeof *connection);
    int on = 1;
    snprintf(path, sizeof path, "%s/%u", directory, number++);
    connection->wire.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    connection->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (connection->wire.fd < 0 || connection->file < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, connection->wire.fd, &event))
        die("cannot accept a connection: %s", strerror(errno));
    setsockopt(connection->wire.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* What one read has brought; false when the connection is over. */
static bool serve(struct connection *connection) {
    static unsigned char replies[REPLIES_MAX * 256];
    if (!inbox_read(&connection->inbox, &connection->wire))
        return false;
    size_t position = 0, size, answered = 0;
    for (const unsigned char *frame; (frame = inbox_next(&connection->inbox, &position, &size));) {
        if (pwrite(connection->file, frame, size, connection->written) != (ssize_t)size)
            die("pwrite: %s", strerror(errno));
        connection->written += (off_t)size;
        memcpy(replies + answered, reply, reply_bytes);
        answered += reply_bytes;
        if (answered + reply_bytes > sizeof replies)
            die("more requests at once than a load has in flight");
    }
    inbox_keep(&connection->inbox, position);
    return !answered || send(connection->wire.fd, replies, answered, MSG_NOSIGNAL) == (ssize_t)answered;
}

int main(int count, char **arguments) {
    if (count != 3)
        die("floor DIRECTORY REPLY");
    struct line line = {"reply", arguments[2]};
    reply = bytes_of(&line, &reply_bytes);
    int listener = listen_on_loopback(), poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[EVENTS_MAX], event = {.events = EPOLLIN};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int index = 0; index < ready; index++) {
            struct connection *connection = events[index].data.ptr;
            if (!connection) {
                accept_connection(poller, listener, arguments[1]);
            } else if (!serve(connection)) {
                close(connection->wire.fd);
                close(connection->file);
                free(connection->inbox.bytes);
                free(connection);
            }
        }
    }
}
