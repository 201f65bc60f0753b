#include "histogram.h"

#include <math.h>

/* Values below SUB_BUCKETS have a bucket each; above, the leading bit names the group and the next bits the bucket. */
static unsigned bucket_of(uint64_t value) {
    if (value < SUB_BUCKETS)
        return (unsigned)value;
    unsigned group = 63 - (unsigned)__builtin_clzll(value) - SUB_BUCKET_BITS;
    return (group + 1) * SUB_BUCKETS + (unsigned)((value >> group) & (SUB_BUCKETS - 1));
}

static uint64_t highest_of(unsigned bucket) {
    if (bucket < SUB_BUCKETS)
        return bucket;
    unsigned group = bucket / SUB_BUCKETS - 1;
    uint64_t lowest = (uint64_t)(SUB_BUCKETS + bucket % SUB_BUCKETS) << group;
    return lowest + ((uint64_t)1 << group) - 1;
}

void histogram_record(struct histogram *histogram, uint64_t value_ns) {
    histogram->counts[bucket_of(value_ns)]++;
    histogram->total++;
    if (value_ns > histogram->max)
        histogram->max = value_ns;
}

uint64_t histogram_percentile(const struct histogram *histogram, double share) {
    uint64_t wanted = (uint64_t)ceil((double)histogram->total * share), seen = 0;
    if (wanted == 0)
        wanted = 1;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen >= wanted) {
            uint64_t highest = highest_of(bucket);
            return highest < histogram->max ? highest : histogram->max;
        }
    }
    return 0;
}

void histogram_print(const struct histogram *histogram, FILE *to) {
    fprintf(to, "{\"p50_us\": %.3f, \"p90_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"max_us\": %.3f}",
            (double)histogram_percentile(histogram, 0.5) / 1e3, (double)histogram_percentile(histogram, 0.9) / 1e3,
            (double)histogram_percentile(histogram, 0.99) / 1e3, (double)histogram_percentile(histogram, 0.999) / 1e3,
            (double)histogram->max / 1e3);
}
