/* The closed loop: every connection keeps so many prepared requests in flight, and sends the next when a reply comes.
 *
 * Reads its job from stdin (see job.h; bench/loads.py has the names) and prints its outcome as one JSON document.  Every
 * reply is read to its error codes; the first error, a reply of another form, a connection that is closed and a broker
 * that is silent for SILENCE_MS end the load with a sentence and exit code 1.
 *
 * Latency runs from the send of a request to the read of its reply; requests that were sent during the warm-up are
 * acknowledged, but not measured.  The load ends when its time is over or enough measured requests are acknowledged, and
 * then takes the replies that are due. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "histogram.h"
#include "job.h"
#include "net.h"
#include "reply.h"

enum { SILENCE_MS = 60000, EVENTS_MAX = 64, CONNECTIONS_MAX = 1024, FRAMES_MAX = 4096, SMALL_FRAME_BYTES = 16384 };

/* A fetch that goes on with a session asks for the same batch again and again; its counter is the session's id and epoch. */
enum api { PRODUCE, COMMIT, FETCH, SESSION_FETCH, HEARTBEAT, METADATA };

struct frame {
    unsigned char *bytes;
    size_t size;
};

struct connection {
    char host[64];
    int port;
    struct wire wire;
    struct inbox inbox;
    /* A Fetch has a frame for each partition, which are read one after another; the rest have one. */
    struct frame *frames;
    size_t frame_count, current;
    /* What is sent is a ring of slots that hold a frame each; a large frame that never changes needs one. */
    unsigned char *ring;
    size_t slots;
    uint64_t enqueued_bytes, sent_bytes;
    /* When each request in flight was sent. */
    uint64_t *sent_at;
    uint64_t sent, acknowledged;
    /* What is written into the next frame, the offset to commit or to fetch; and where, -1 for nowhere.  It begins with
     * 0, of a session with what stands there. */
    uint64_t counter;
    long counter_at;
    bool is_blocked, is_over;
};

static struct {
    char host[64];
    int port;
    enum api api;
    size_t in_flight;
    double seconds, warmup_seconds;
    uint64_t requests;
    /* Behind which offset a Fetch goes on with the next partition. */
    uint64_t end_offset;
    /* Whether a Fetch begins again behind its last partition. */
    bool is_endless;
    bool is_tls;
} job = {.in_flight = 1, .seconds = 3, .requests = UINT64_MAX, .end_offset = UINT64_MAX};

static struct connection connections[CONNECTIONS_MAX];
static size_t connection_count;
static struct histogram latencies;
static uint64_t measured_from_ns, ends_ns, last_ns, measured_bytes;
static int poller;

/* A connection goes to the address that stands last before it. */
static void take_connection(const struct line *line) {
    struct connection *connection = &connections[connection_count++];
    connection->counter_at = (long)number_of(line);
    memcpy(connection->host, job.host, sizeof job.host);
    connection->port = job.port;
}

static void take_frame(const struct line *line) {
    if (!connection_count)
        die("a job with a frame before its connection");
    struct connection *connection = &connections[connection_count - 1];
    if (connection->frame_count == FRAMES_MAX)
        die("more than %d frames", FRAMES_MAX);
    connection->frames = realloc(connection->frames, (connection->frame_count + 1) * sizeof(struct frame));
    if (!connection->frames)
        die("no memory for %zu frames", connection->frame_count + 1);
    struct frame *frame = &connection->frames[connection->frame_count++];
    frame->bytes = bytes_of(line, &frame->size);
    if (frame->size != connection->frames[0].size || connection->counter_at + 8 > (long)frame->size)
        die("frames of one connection must be of one size and have room for the counter");
}

static void take_api(const struct line *line) {
    static const char *const names[] = {"produce", "commit", "fetch", "session_fetch", "heartbeat", "metadata"};
    for (int api = PRODUCE; api <= METADATA; api++)
        if (!strcmp(line->value, names[api])) {
            job.api = (enum api)api;
            return;
        }
    die_of_line(line);
}

static void take_line(const struct line *line) {
    if (!strcmp(line->name, "host"))
        strncpy(job.host, line->value, sizeof job.host - 1);
    else if (!strcmp(line->name, "port"))
        job.port = (int)number_of(line);
    else if (!strcmp(line->name, "api"))
        take_api(line);
    else if (!strcmp(line->name, "in_flight"))
        job.in_flight = (size_t)number_of(line);
    else if (!strcmp(line->name, "seconds"))
        job.seconds = number_of(line);
    else if (!strcmp(line->name, "warmup_seconds"))
        job.warmup_seconds = number_of(line);
    else if (!strcmp(line->name, "requests"))
        job.requests = (uint64_t)number_of(line);
    else if (!strcmp(line->name, "end_offset"))
        job.end_offset = (uint64_t)number_of(line);
    else if (!strcmp(line->name, "is_endless"))
        job.is_endless = number_of(line) != 0;
    else if (!strcmp(line->name, "is_tls"))
        job.is_tls = number_of(line) != 0;
    else if (!strcmp(line->name, "connection") && connection_count < CONNECTIONS_MAX)
        take_connection(line);
    else if (!strcmp(line->name, "frame"))
        take_frame(line);
    else
        die_of_line(line);
}

static void read_job(void) {
    struct line line;
    while (next_line(&line))
        take_line(&line);
    if (!connection_count || !job.in_flight)
        die("a job without connections or requests in flight");
    if ((job.api == FETCH || job.api == SESSION_FETCH) && job.in_flight != 1)
        die("where a fetch goes on is known when the one before has come: one in flight, not %zu", job.in_flight);
}

static size_t frame_bytes(const struct connection *connection) { return connection->frames[0].size; }

static void poll_for(struct connection *connection, int operation) {
    struct epoll_event event = {.events = connection->is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(poller, operation, connection->wire.fd, &event))
        die("epoll_ctl: %s", strerror(errno));
}

static void open_connection(struct connection *connection) {
    if (!connection->frame_count)
        die("a connection without a frame");
    size_t size = frame_bytes(connection);
    bool is_one_for_all = connection->counter_at < 0 && size > SMALL_FRAME_BYTES;
    connection->slots = is_one_for_all ? 1 : job.in_flight;
    connection->ring = allocate(connection->slots * size);
    if (job.api == SESSION_FETCH)
        connection->counter = read_u64(connection->frames[0].bytes + connection->counter_at);
    for (size_t slot = 0; slot < connection->slots; slot++)
        memcpy(connection->ring + slot * size, connection->frames[0].bytes, size);
    connection->sent_at = allocate(job.in_flight * sizeof *connection->sent_at);
    connection->wire = connect_to(connection->host, connection->port, job.is_tls);
    poll_for(connection, EPOLL_CTL_ADD);
}

/* Send what the socket takes of what is enqueued. */
static void flush(struct connection *connection) {
    size_t ring_bytes = connection->slots * frame_bytes(connection);
    bool was_blocked = connection->is_blocked;
    connection->is_blocked = false;
    while (connection->sent_bytes < connection->enqueued_bytes) {
        size_t left = connection->enqueued_bytes - connection->sent_bytes, from = connection->sent_bytes % ring_bytes;
        size_t first = left < ring_bytes - from ? left : ring_bytes - from;
        size_t second = left - first < ring_bytes ? left - first : ring_bytes;
        struct iovec parts[] = {{connection->ring + from, first}, {connection->ring, second}};
        ssize_t taken = wire_send(&connection->wire, parts, second ? 2 : 1);
        if (taken < 0 && errno == EAGAIN) {
            connection->is_blocked = true;
            break;
        }
        if (taken < 0)
            die("the broker closed a connection: %s", strerror(errno));
        connection->sent_bytes += (uint64_t)taken;
    }
    if (connection->is_blocked != was_blocked)
        poll_for(connection, EPOLL_CTL_MOD);
}

static void write_counter(struct connection *connection) {
    size_t size = frame_bytes(connection);
    unsigned char *slot = connection->ring + connection->enqueued_bytes % (connection->slots * size);
    if (job.api == FETCH) {
        memcpy(slot, connection->frames[connection->current].bytes, size);
        write_u64(slot + connection->counter_at, connection->counter);
    } else {
        write_u64(slot + connection->counter_at, connection->counter++);
    }
}

static void send_requests(struct connection *connection, size_t count, uint64_t now) {
    for (; count; count--) {
        if (connection->counter_at >= 0)
            write_counter(connection);
        connection->enqueued_bytes += frame_bytes(connection);
        connection->sent_at[connection->sent++ % job.in_flight] = now;
    }
    flush(connection);
}

static void take_fetched(void *context, const struct fetched *fetched) {
    struct connection *connection = context;
    connection->counter = fetched->next_offset;
    if (connection->sent_at[0] >= measured_from_ns)
        measured_bytes += fetched->bytes;
}

/* Where the next Fetch begins: behind what has come, or with the next partition. */
static void read_fetched(struct connection *connection, const unsigned char *reply, size_t size) {
    uint64_t before = connection->counter;
    read_fetch(reply, size, take_fetched, connection);
    if (connection->counter != before && connection->counter < job.end_offset)
        return;
    connection->counter = 0;
    connection->current = (connection->current + 1) % connection->frame_count;
    connection->is_over = !connection->current && !job.is_endless;
}

static void take_batch(void *context, const struct fetched *fetched) { *(size_t *)context += fetched->bytes; }

static void read_session_fetched(const unsigned char *reply, size_t size) {
    size_t bytes = 0;
    read_fetch(reply, size, take_batch, &bytes);
    if (!bytes)
        die("session_fetch: a reply without a batch");
}

static void take_reply(struct connection *connection, const unsigned char *reply, size_t size, uint64_t now) {
    if (connection->acknowledged == connection->sent)
        die("a reply that nobody asked for");
    if (job.api == PRODUCE)
        check_produce(reply, size);
    else if (job.api == COMMIT)
        check_commit(reply, size);
    else if (job.api == HEARTBEAT)
        check_heartbeat(reply, size);
    else if (job.api == METADATA)
        check_metadata(reply, size);
    else if (job.api == SESSION_FETCH)
        read_session_fetched(reply, size);
    else
        read_fetched(connection, reply, size);
    uint64_t sent_at = connection->sent_at[connection->acknowledged++ % job.in_flight];
    if (sent_at >= measured_from_ns)
        histogram_record(&latencies, now - sent_at);
    last_ns = now;
}

static size_t take_replies(struct connection *connection) {
    if (!inbox_read(&connection->inbox, &connection->wire))
        die("the broker closed a connection with %" PRIu64 " requests in flight",
            connection->sent - connection->acknowledged);
    uint64_t now = now_ns();
    size_t position = 0, size, replies = 0;
    for (const unsigned char *reply; (reply = inbox_next(&connection->inbox, &position, &size)); replies++)
        take_reply(connection, reply, size, now);
    inbox_keep(&connection->inbox, position);
    return replies;
}

static void receive(struct connection *connection) {
    size_t replies = 0;
    do
        replies += take_replies(connection);
    while (wire_has_more(&connection->wire));
    uint64_t now = now_ns();
    connection->is_over |= now >= ends_ns || latencies.total >= job.requests;
    if (replies && !connection->is_over)
        send_requests(connection, replies, now);
}

static void drive(void) {
    struct epoll_event events[EVENTS_MAX];
    for (size_t index = 0; index < connection_count; index++)
        send_requests(&connections[index], job.in_flight, now_ns());
    for (size_t finished = 0; finished < connection_count;) {
        int ready = epoll_wait(poller, events, EVENTS_MAX, SILENCE_MS);
        if (!ready)
            die("the broker has been silent for %d s", SILENCE_MS / 1000);
        for (int index = 0; index < ready; index++) {
            struct connection *connection = events[index].data.ptr;
            if (events[index].events & EPOLLOUT)
                flush(connection);
            if (!(events[index].events & ~(unsigned)EPOLLOUT))
                continue;
            receive(connection);
            if (connection->is_over && connection->acknowledged == connection->sent) {
                epoll_ctl(poller, EPOLL_CTL_DEL, connection->wire.fd, NULL);
                finished++;
            }
        }
    }
}

static void print_outcome(uint64_t started_ns) {
    uint64_t acknowledged = 0;
    for (size_t index = 0; index < connection_count; index++)
        acknowledged += connections[index].acknowledged;
    printf("{\"requests\": %" PRIu64 ", \"acknowledged\": %" PRIu64 ", \"seconds\": %.6f, \"fetched_bytes\": %" PRIu64
           ", \"client_cpu_share\": %.3f, \"by_connection\": [",
           latencies.total, acknowledged, (double)(last_ns - measured_from_ns) / 1e9, measured_bytes,
           cpu_share(started_ns));
    for (size_t index = 0; index < connection_count; index++)
        printf("%s%" PRIu64, index ? ", " : "", connections[index].acknowledged);
    printf("], \"latency\": ");
    histogram_print(&latencies, stdout);
    printf("}\n");
}

int main(void) {
    read_job();
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        die("epoll_create1: %s", strerror(errno));
    for (size_t index = 0; index < connection_count; index++)
        open_connection(&connections[index]);
    uint64_t started_ns = now_ns();
    measured_from_ns = started_ns + (uint64_t)(job.warmup_seconds * 1e9);
    ends_ns = measured_from_ns + (uint64_t)(job.seconds * 1e9);
    drive();
    if (!latencies.total)
        die("no request that was sent after the warm-up was acknowledged");
    print_outcome(started_ns);
    return 0;
}
