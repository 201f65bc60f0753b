/* Prints the percentiles of the nanoseconds on stdin, one a line: what the tests ask the histogram. */
#include <stdio.h>
#include <inttypes.h>

#include "histogram.h"

int main(void) {
    static struct histogram histogram;
    uint64_t value;
    while (scanf("%" SCNu64, &value) == 1)
        histogram_record(&histogram, value);
    histogram_print(&histogram, stdout);
    putchar('\n');
    return 0;
}
