/* The open loop: requests of one record leave by schedule, whatever the broker does, and consumers wait for them.
 *
 * Reads its job from stdin (see job.h; bench/loads.py has the names) and prints its outcome as one JSON document.  Errors
 * end it as they end the closed loop.
 *
 * Request i is due at start + i / rate and goes to partition i modulo their number, over a connection that the partition
 * always has.  Latency counts from the moment that the schedule names: a stall of the broker is counted for every request
 * that it delays.  A record is known by its offset, since nobody else writes to the topic, so that nothing is put into
 * records and none is decoded.  Every partition holds one record before the load begins. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "histogram.h"
#include "job.h"
#include "net.h"
#include "reply.h"

enum { EVENTS_MAX = 256, ENDS_MAX = 1024, PARTITIONS_MAX = 10000, HEAD_START_MS = 50, DRAIN_S = 60 };

struct bytes {
    unsigned char *at;
    size_t size;
};

struct address {
    char host[64];
    int port;
};

/* A connection of a producer or of a consumer. */
struct end {
    struct address address;
    struct wire wire;
    bool is_consumer, is_blocked;
    struct inbox inbox;
    struct bytes unsent;
    size_t unsent_capacity;
    /* Of a producer: the number of the request that is answered next, and how many wait for that. */
    uint64_t next_answered, in_flight;
    /* Of a consumer: its Fetch. */
    struct bytes fetch;
};

struct partition {
    struct address address;
    struct bytes produce;
    uint64_t fetched; /* the offset up to which its consumer has read */
    size_t offset_at; /* where in its consumer's Fetch that stands */
};

static struct {
    struct address address; /* of what follows in the job */
    double rate, seconds, warmup_seconds;
    size_t producers;
} job = {.producers = 1};

static struct end ends[ENDS_MAX];
static size_t end_count;
static struct partition partitions[PARTITIONS_MAX];
static size_t partition_count;
static struct histogram produce, end_to_end;
static uint64_t start_ns, total, measured_from, scheduled, answered, consumed;
static int poller;

static struct bytes take_bytes(const struct line *line) {
    struct bytes bytes;
    bytes.at = bytes_of(line, &bytes.size);
    return bytes;
}

static void take_offset_at(const struct line *line) {
    size_t partition, at;
    if (sscanf(line->value, "%zu %zu", &partition, &at) != 2 || partition >= partition_count ||
        at + 8 > ends[end_count - 1].fetch.size)
        die_of_line(line);
    partitions[partition].offset_at = at;
    write_u64(ends[end_count - 1].fetch.at + at, partitions[partition].fetched);
}

static void take_line(const struct line *line) {
    if (!strcmp(line->name, "host"))
        strncpy(job.address.host, line->value, sizeof job.address.host - 1);
    else if (!strcmp(line->name, "port"))
        job.address.port = (int)number_of(line);
    else if (!strcmp(line->name, "rate"))
        job.rate = number_of(line);
    else if (!strcmp(line->name, "seconds"))
        job.seconds = number_of(line);
    else if (!strcmp(line->name, "warmup_seconds"))
        job.warmup_seconds = number_of(line);
    else if (!strcmp(line->name, "producers"))
        job.producers = (size_t)number_of(line);
    else if (!strcmp(line->name, "partition") && partition_count < PARTITIONS_MAX)
        partitions[partition_count++] = (struct partition){.address = job.address, .produce = take_bytes(line), .fetched = 1};
    else if (!strcmp(line->name, "consumer") && end_count + job.producers < ENDS_MAX)
        ends[end_count++] = (struct end){.address = job.address, .is_consumer = true, .fetch = take_bytes(line)};
    else if (!strcmp(line->name, "offset_at") && end_count)
        take_offset_at(line);
    else
        die_of_line(line);
}

static uint64_t due_ns(uint64_t request) { return start_ns + (uint64_t)((double)request * 1e9 / job.rate); }

static size_t producer_of(uint64_t request) { return request % partition_count % job.producers; }

static void poll_for(struct end *end, int operation) {
    struct epoll_event event = {.events = end->is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = end};
    if (epoll_ctl(poller, operation, end->wire.fd, &event))
        die("epoll_ctl: %s", strerror(errno));
}

static void flush(struct end *end) {
    bool was_blocked = end->is_blocked;
    ssize_t taken = send(end->wire.fd, end->unsent.at, end->unsent.size, MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN)
        die("the broker closed a connection: %s", strerror(errno));
    if (taken > 0) {
        end->unsent.size -= (size_t)taken;
        memmove(end->unsent.at, end->unsent.at + taken, end->unsent.size);
    }
    end->is_blocked = end->unsent.size > 0;
    if (end->is_blocked != was_blocked)
        poll_for(end, EPOLL_CTL_MOD);
}

static void enqueue(struct end *end, const struct bytes *frame) {
    if (end->unsent.size + frame->size > end->unsent_capacity) {
        end->unsent_capacity = 2 * (end->unsent.size + frame->size);
        end->unsent.at = realloc(end->unsent.at, end->unsent_capacity);
        if (!end->unsent.at)
            die("no memory for %zu bytes", end->unsent_capacity);
    }
    memcpy(end->unsent.at + end->unsent.size, frame->at, frame->size);
    end->unsent.size += frame->size;
}

/* The partitions of a producer are led by one broker. */
static void open_producers(void) {
    for (size_t index = 0; index < partition_count; index++) {
        struct address *address = &ends[index % job.producers].address;
        if (index < job.producers)
            *address = partitions[index].address;
        else if (address->port != partitions[index].address.port ||
                 strcmp(address->host, partitions[index].address.host))
            die("a producer with partitions of two brokers");
    }
}

/* Producers come first in `ends`, so that a request finds its own. */
static void open_ends(void) {
    memmove(ends + job.producers, ends, end_count * sizeof *ends);
    memset(ends, 0, job.producers * sizeof *ends);
    end_count += job.producers;
    open_producers();
    for (size_t index = 0; index < end_count; index++) {
        ends[index].next_answered = index;
        ends[index].wire = connect_to(ends[index].address.host, ends[index].address.port, false);
        poll_for(&ends[index], EPOLL_CTL_ADD);
    }
    for (size_t index = job.producers; index < end_count; index++) {
        enqueue(&ends[index], &ends[index].fetch);
        flush(&ends[index]);
    }
}

/* Send what is due by now, each connection's requests in one go. */
static void send_due(uint64_t now) {
    bool has_more[ENDS_MAX] = {false};
    uint64_t first = scheduled;
    for (; scheduled < total && due_ns(scheduled) <= now; scheduled++) {
        struct end *producer = &ends[producer_of(scheduled)];
        enqueue(producer, &partitions[scheduled % partition_count].produce);
        producer->in_flight++;
        has_more[producer - ends] = true;
    }
    if (scheduled == first)
        return;
    for (size_t index = 0; index < job.producers; index++)
        if (has_more[index] && !ends[index].is_blocked)
            flush(&ends[index]);
}

static void acknowledge(struct end *end, const unsigned char *reply, size_t size, uint64_t now) {
    check_produce(reply, size);
    if (!end->in_flight--)
        die("a reply that nobody asked for");
    answered++;
    if (end->next_answered >= measured_from)
        histogram_record(&produce, now - due_ns(end->next_answered));
    do
        end->next_answered++;
    while (&ends[producer_of(end->next_answered)] != end);
}

static void consume(void *context, const struct fetched *fetched) {
    uint64_t now = now_ns();
    struct end *consumer = context;
    if (fetched->partition >= partition_count)
        die("a fetch of partition %u, which nobody asked for", fetched->partition);
    struct partition *partition = &partitions[fetched->partition];
    for (; partition->fetched < fetched->next_offset; partition->fetched++) {
        uint64_t request = (partition->fetched - 1) * partition_count + fetched->partition;
        if (request >= scheduled)
            die("partition %u has a record that was not sent", fetched->partition);
        consumed++;
        if (request >= measured_from)
            histogram_record(&end_to_end, now - due_ns(request));
    }
    write_u64(consumer->fetch.at + partition->offset_at, partition->fetched);
}

static void receive(struct end *end) {
    if (!inbox_read(&end->inbox, &end->wire))
        die("the broker closed a connection with %" PRIu64 " requests in flight", end->in_flight);
    uint64_t now = now_ns();
    size_t position = 0, size;
    for (const unsigned char *reply; (reply = inbox_next(&end->inbox, &position, &size));) {
        if (!end->is_consumer) {
            acknowledge(end, reply, size, now);
            continue;
        }
        read_fetch(reply, size, consume, end);
        enqueue(end, &end->fetch);
        flush(end);
    }
    inbox_keep(&end->inbox, position);
}

static void wake_at(int timer, uint64_t when_ns) {
    struct itimerspec spec = {.it_value = {(time_t)(when_ns / 1000000000u), (long)(when_ns % 1000000000u)}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL))
        die("timerfd_settime: %s", strerror(errno));
}

static void drive(void) {
    struct epoll_event events[EVENTS_MAX], event = {.events = EPOLLIN | EPOLLET};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event))
        die("timerfd: %s", strerror(errno));
    uint64_t gives_up_ns = due_ns(total) + (uint64_t)DRAIN_S * 1000000000u;
    bool has_consumers = end_count > job.producers;
    while (answered < total || (has_consumers && consumed < total)) {
        uint64_t now = now_ns();
        if (now >= gives_up_ns)
            break;
        send_due(now);
        wake_at(timer, scheduled < total ? due_ns(scheduled) : gives_up_ns);
        int ready = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int index = 0; index < ready; index++) {
            struct end *end = events[index].data.ptr;
            if (end && events[index].events & EPOLLOUT)
                flush(end);
            if (end && events[index].events & ~(unsigned)EPOLLOUT)
                receive(end);
        }
    }
}

static void print_outcome(uint64_t began_ns) {
    bool has_consumers = end_count > job.producers;
    uint64_t came_back = has_consumers && consumed < answered ? consumed : answered;
    printf("{\"requests\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"client_cpu_share\": %.3f, \"produce\": ", produce.total,
           total - came_back, cpu_share(began_ns));
    histogram_print(&produce, stdout);
    printf(", \"end_to_end\": ");
    histogram_print(&end_to_end, stdout);
    printf("}\n");
}

int main(void) {
    struct line line;
    while (next_line(&line))
        take_line(&line);
    if (!partition_count || !job.producers || job.producers > partition_count || !(job.rate > 0))
        die("a job needs a rate, partitions, and a partition for each producer");
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        die("epoll_create1: %s", strerror(errno));
    total = (uint64_t)(job.rate * (job.warmup_seconds + job.seconds));
    measured_from = (uint64_t)(job.rate * job.warmup_seconds);
    uint64_t began_ns = now_ns();
    open_ends();
    start_ns = now_ns() + (uint64_t)HEAD_START_MS * 1000000u;
    drive();
    print_outcome(began_ns);
    return 0;
}
