#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "net.h"

void die_of_line(const struct line *line) { die("a job with %s %.40s", line->name, line->value); }

bool next_line(struct line *line) {
    static char *text;
    static size_t capacity;
    ssize_t length = getline(&text, &capacity, stdin);
    if (length < 0)
        return false;
    text[strcspn(text, "\n")] = 0;
    char *space = strchr(text, ' ');
    if (!space)
        die("a job with the line \"%.40s\"", text);
    *space = 0;
    *line = (struct line){text, space + 1};
    return true;
}

double number_of(const struct line *line) {
    char *end;
    double number = strtod(line->value, &end);
    if (end == line->value || *end)
        die_of_line(line);
    return number;
}

static unsigned digit(const struct line *line, char character) {
    const char *digits = "0123456789abcdef", *found = strchr(digits, character);
    if (!character || !found)
        die_of_line(line);
    return (unsigned)(found - digits);
}

unsigned char *bytes_of(const struct line *line, size_t *size) {
    *size = strlen(line->value) / 2;
    unsigned char *bytes = allocate(*size);
    for (size_t index = 0; index < *size; index++)
        bytes[index] =
            (unsigned char)(digit(line, line->value[2 * index]) << 4 | digit(line, line->value[2 * index + 1]));
    return bytes;
}
