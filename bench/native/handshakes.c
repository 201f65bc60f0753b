/* Clients that connect, shake hands in full and close, again and again: a process each.
 *
 * Reads its job from stdin (host, port, clients, seconds) and prints how many handshakes there were in how many seconds
 * as one JSON document. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job.h"
#include "net.h"
#include "tls.h"

static struct {
    char host[64];
    int port, clients;
    double seconds;
} job = {.clients = 4, .seconds = 3};

static void read_job(void) {
    struct line line;
    while (next_line(&line))
        if (!strcmp(line.name, "host"))
            strncpy(job.host, line.value, sizeof job.host - 1);
        else if (!strcmp(line.name, "port"))
            job.port = (int)number_of(&line);
        else if (!strcmp(line.name, "clients"))
            job.clients = (int)number_of(&line);
        else if (!strcmp(line.name, "seconds"))
            job.seconds = number_of(&line);
        else
            die_of_line(&line);
}

static uint64_t shake_hands(uint64_t ends_ns) {
    uint64_t count = 0;
    for (; now_ns() < ends_ns; count++) {
        struct wire wire = connect_to(job.host, job.port, true);
        tls_close(wire.tls, wire.fd);
    }
    return count;
}

int main(void) {
    int counts[2];
    read_job();
    if (pipe(counts))
        die("no pipe");
    uint64_t started_ns = now_ns(), ends_ns = started_ns + (uint64_t)(job.seconds * 1e9), all = 0, count;
    for (int client = 0; client < job.clients; client++)
        if (!fork()) {
            count = shake_hands(ends_ns);
            _exit(write(counts[1], &count, sizeof count) != sizeof count);
        }
    for (int client = 0, status; client < job.clients; client++) {
        if (wait(&status) < 0 || status || read(counts[0], &count, sizeof count) != sizeof count)
            die("a client failed");
        all += count;
    }
    printf("{\"handshakes\": %" PRIu64 ", \"seconds\": %.6f}\n", all, (double)(now_ns() - started_ns) / 1e9);
    return 0;
}
