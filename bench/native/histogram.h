/* Latencies in a log-linear histogram, as HdrHistogram keeps them: every power of two is cut into equal buckets, so that
 * a value is known to within 1/128 of itself whatever its size, and recording one is a few instructions. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

enum { SUB_BUCKET_BITS = 7, SUB_BUCKETS = 1 << SUB_BUCKET_BITS, BUCKETS = (64 - SUB_BUCKET_BITS + 1) * SUB_BUCKETS };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total;
    uint64_t max;
};

void histogram_record(struct histogram *histogram, uint64_t value_ns);

/* The value that `share` (0 to 1) of all values do not exceed, at most 1/128 too high; 0 of an empty histogram. */
uint64_t histogram_percentile(const struct histogram *histogram, double share);

/* As a JSON object of microseconds: p50_us, p90_us, p99_us, p999_us, max_us. */
void histogram_print(const struct histogram *histogram, FILE *to);

#endif
