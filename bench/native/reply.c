#include "reply.h"

#include "net.h"

/* Of a batch: base offset and length, with which its rest begins, and where the delta of its last offset stands. */
enum { BATCH_LENGTH_AT = 8, BATCH_PREFIX_BYTES = 12, LAST_OFFSET_DELTA_AT = 23, BATCH_HEADER_BYTES = 61 };

struct reader {
    const unsigned char *at, *end;
    const char *api;
};

static const unsigned char *take(struct reader *reader, uint64_t size) {
    if (size > (uint64_t)(reader->end - reader->at))
        die("%s: a reply ends too early", reader->api);
    const unsigned char *taken = reader->at;
    reader->at += size;
    return taken;
}

static uint32_t take_u32(struct reader *reader) { return read_u32(take(reader, 4)); }

static uint64_t take_varint(struct reader *reader) {
    uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
        unsigned char byte = *take(reader, 1);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    die("%s: a reply has a number without an end", reader->api);
}

/* The length of a compact string, array or bytes; none where it is null. */
static uint64_t take_length(struct reader *reader) {
    uint64_t coded = take_varint(reader);
    return coded ? coded - 1 : 0;
}

static void skip_bytes(struct reader *reader) { take(reader, take_length(reader)); }

static void skip_tags(struct reader *reader) {
    for (uint64_t left = take_varint(reader); left; left--) {
        take_varint(reader);
        take(reader, take_varint(reader));
    }
}

static void check_error(struct reader *reader, const char *of, uint32_t number) {
    const unsigned char *at = take(reader, 2);
    int error = (int16_t)(at[0] << 8 | at[1]);
    if (error)
        die("%s: error %d in a reply, %s %u", reader->api, error, of, number);
}

static struct reader begin(const char *api, const unsigned char *reply, size_t size) {
    struct reader reader = {reply, reply + size, api};
    take(&reader, 4); /* the correlation id: replies come in the order of the requests */
    skip_tags(&reader);
    return reader;
}

static void check_end(const struct reader *reader) {
    if (reader->at != reader->end)
        die("%s: a reply is longer than what it says", reader->api);
}

/* What a reply must hold is one partition at least: one that holds none has told of no record. */
static uint64_t take_partitions(struct reader *reader) {
    uint64_t partitions = take_length(reader);
    if (!partitions)
        die("%s: a reply without a partition", reader->api);
    return partitions;
}

void check_produce(const unsigned char *reply, size_t size) {
    struct reader reader = begin("produce", reply, size);
    for (uint64_t topics = take_partitions(&reader); topics; topics--) {
        skip_bytes(&reader);
        for (uint64_t partitions = take_partitions(&reader); partitions; partitions--) {
            uint32_t partition = take_u32(&reader);
            check_error(&reader, "partition", partition);
            take(&reader, 8 + 8 + 8); /* base offset, time of the append, start of the log */
            for (uint64_t errors = take_length(&reader); errors; errors--) {
                take(&reader, 4);
                skip_bytes(&reader);
                skip_tags(&reader);
            }
            skip_bytes(&reader);
            skip_tags(&reader);
        }
        skip_tags(&reader);
    }
    take(&reader, 4); /* throttle time */
    skip_tags(&reader);
    check_end(&reader);
}

void check_commit(const unsigned char *reply, size_t size) {
    struct reader reader = begin("commit", reply, size);
    take(&reader, 4); /* throttle time */
    for (uint64_t topics = take_partitions(&reader); topics; topics--) {
        skip_bytes(&reader);
        for (uint64_t partitions = take_partitions(&reader); partitions; partitions--) {
            uint32_t partition = take_u32(&reader);
            check_error(&reader, "partition", partition);
            skip_tags(&reader);
        }
        skip_tags(&reader);
    }
    skip_tags(&reader);
    check_end(&reader);
}

void check_heartbeat(const unsigned char *reply, size_t size) {
    struct reader reader = begin("heartbeat", reply, size);
    take(&reader, 4); /* throttle time */
    check_error(&reader, "of the group", 0);
    skip_tags(&reader);
    check_end(&reader);
}

/* As far as the error of the first topic. */
void check_metadata(const unsigned char *reply, size_t size) {
    struct reader reader = begin("metadata", reply, size);
    take(&reader, 4); /* throttle time */
    for (uint64_t brokers = take_length(&reader); brokers; brokers--) {
        take(&reader, 4); /* id */
        skip_bytes(&reader);
        take(&reader, 4); /* port */
        skip_bytes(&reader); /* rack */
        skip_tags(&reader);
    }
    skip_bytes(&reader); /* cluster id */
    take(&reader, 4); /* controller */
    if (!take_length(&reader))
        die("metadata: a reply without a topic");
    check_error(&reader, "topic", 0);
}

/* The offset behind the last whole batch; 0 where none is whole. */
static uint64_t behind_batches(const unsigned char *at, uint64_t size) {
    uint64_t next = 0;
    while (size >= BATCH_HEADER_BYTES) {
        uint64_t batch_bytes = BATCH_PREFIX_BYTES + (uint64_t)read_u32(at + BATCH_LENGTH_AT);
        if (batch_bytes < BATCH_HEADER_BYTES)
            die("fetch: a batch of %u bytes", (unsigned)batch_bytes);
        if (batch_bytes > size)
            break;
        next = read_u64(at) + read_u32(at + LAST_OFFSET_DELTA_AT) + 1;
        at += batch_bytes;
        size -= batch_bytes;
    }
    return next;
}

void read_fetch(const unsigned char *reply, size_t size, void (*each)(void *, const struct fetched *), void *context) {
    struct reader reader = begin("fetch", reply, size);
    take(&reader, 4); /* throttle time */
    check_error(&reader, "of the session", 0);
    take(&reader, 4); /* session id */
    for (uint64_t topics = take_length(&reader); topics; topics--) {
        skip_bytes(&reader);
        for (uint64_t partitions = take_length(&reader); partitions; partitions--) {
            struct fetched fetched = {.partition = take_u32(&reader)};
            check_error(&reader, "partition", fetched.partition);
            take(&reader, 8 + 8 + 8); /* high watermark, last stable offset, start of the log */
            for (uint64_t aborted = take_length(&reader); aborted; aborted--) {
                take(&reader, 8 + 8);
                skip_tags(&reader);
            }
            take(&reader, 4); /* preferred replica */
            fetched.bytes = take_length(&reader);
            fetched.next_offset = behind_batches(take(&reader, fetched.bytes), fetched.bytes);
            skip_tags(&reader);
            if (fetched.next_offset)
                each(context, &fetched);
        }
        skip_tags(&reader);
    }
    skip_tags(&reader);
    check_end(&reader);
}
