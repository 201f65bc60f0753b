/* Replies of Produce 11, OffsetCommit 9, Heartbeat 4, Metadata 12 and Fetch 12 (the versions of bench/wire.py), as far as
 * a load looks at them. */
#ifndef REPLY_H
#define REPLY_H

#include <stddef.h>
#include <stdint.h>

/* Each ends the program when a reply carries an error of the broker, or cannot be read. */
void check_produce(const unsigned char *reply, size_t size);
void check_commit(const unsigned char *reply, size_t size);
void check_heartbeat(const unsigned char *reply, size_t size);
void check_metadata(const unsigned char *reply, size_t size);

/* Batches that a Fetch brought for a partition: their bytes, and the offset behind the last whole one. */
struct fetched {
    uint32_t partition;
    size_t bytes;
    uint64_t next_offset;
};

/* Call `each` for every partition of a reply that has whole batches. */
void read_fetch(const unsigned char *reply, size_t size, void (*each)(void *context, const struct fetched *), void *context);

#endif
