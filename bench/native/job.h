/* The job of a load, as text on stdin: one `name value` a line, frames in hexadecimal.  bench/loads.py writes it. */
#ifndef JOB_H
#define JOB_H

#include <stdbool.h>
#include <stddef.h>

struct line {
    char *name, *value;
};

/* The next line, whose text is valid until the one after it; false behind the last. */
bool next_line(struct line *line);
double number_of(const struct line *line);
/* The bytes that a line's value spells. */
unsigned char *bytes_of(const struct line *line, size_t *size);
_Noreturn void die_of_line(const struct line *line);

#endif
