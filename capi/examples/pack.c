/*
 * Packs the buffers of a CSV file: pack FILE.csv [CAPACITY [NODE_LIMIT]]
 *
 * Reads minimalloc's columns id, lower, upper, size, and alignment if it is there; writes the same
 * rows with offsets to stdout, as `arenaplan pack FILE.csv -o -` does, and a report to stderr. Ends
 * with 1 if the buffers do not fit the capacity.
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arenaplan.h"

enum { LOWER, UPPER, SIZE, ALIGNMENT, ID, COLUMNS };

static const char *const NAMES[COLUMNS] = {"lower", "upper", "size", "alignment", "id"};

/* Ends the program with a message. */
static void fail(const char *what, const char *reason)
{
    fprintf(stderr, "pack: %s: %s\n", what, reason);
    exit(2);
}

/* Ends the program unless a call succeeded. */
static void check(ap_code code, const char *what)
{
    if (code != AP_CODE_OK)
        fail(what, ap_last_error());
}

/* Returns the number that a field holds, and nothing else. */
static uint64_t number(const char *field)
{
    char *end = NULL;
    unsigned long long value;

    errno = 0;
    value = strtoull(field, &end, 10);
    if (*field < '0' || *field > '9' || *end != '\0' || errno != 0)
        fail(field, "is not a whole number");
    return value;
}

/* Reads a line without its end into `line`, and cuts it into fields; returns how many there are. */
static size_t read_fields(FILE *file, char *line, int size, char *fields[], size_t room)
{
    size_t count = 0;
    char *rest;

    if (fgets(line, size, file) == NULL)
        return 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (rest = line; rest != NULL && count < room; count++) {
        fields[count] = rest;
        rest = strchr(rest, ',');
        if (rest != NULL)
            *rest++ = '\0';
    }
    return count;
}

/* Adds the buffers of a file to a problem. */
static void read_problem(FILE *file, ap_problem *problem)
{
    char line[4096];
    char *fields[16];
    size_t column[COLUMNS];
    size_t count = read_fields(file, line, sizeof line, fields, 16);
    size_t i, c;

    for (c = 0; c < COLUMNS; c++) {
        for (column[c] = 0; column[c] < count; column[c]++)
            if (strcmp(fields[column[c]], NAMES[c]) == 0)
                break;
        if (column[c] == count && c != ALIGNMENT)
            fail(NAMES[c], "there is no such column");
    }
    while ((i = read_fields(file, line, sizeof line, fields, 16)) > 0) {
        if (i != count)
            fail(fields[0], "the row has another number of fields than the header");
        check(ap_problem_add(problem, number(fields[column[LOWER]]), number(fields[column[UPPER]]),
                             number(fields[column[SIZE]]),
                             column[ALIGNMENT] < count ? number(fields[column[ALIGNMENT]]) : 1),
              fields[column[ID]]);
    }
}

/* Writes the rows of a file with an offset behind each. */
static void write_offsets(FILE *file, const uint64_t *offsets)
{
    char line[4096];
    size_t row;

    for (row = 0; fgets(line, sizeof line, file) != NULL; row++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (row == 0)
            printf("%s,offset\n", line);
        else
            printf("%s,%llu\n", line, (unsigned long long)offsets[row - 1]);
    }
}

int main(int argc, char **argv)
{
    static const char *const STATUS[] = {"optimal", "feasible", "infeasible", "unknown"};
    ap_options options = {.size = sizeof options};
    ap_problem *problem = ap_problem_new();
    ap_packing *packing = NULL;
    ap_status status;
    FILE *file;

    if (argc < 2 || argc > 4)
        fail("usage", "pack FILE.csv [CAPACITY [NODE_LIMIT]]");
    file = fopen(argv[1], "r");
    if (file == NULL)
        fail(argv[1], strerror(errno));
    if (argc > 2)
        options.capacity = number(argv[2]);
    if (argc > 3)
        options.node_limit = number(argv[3]);

    read_problem(file, problem);
    check(ap_solve(problem, &options, &packing), argv[1]);
    check(ap_packing_check(packing), argv[1]);
    status = ap_packing_status(packing);
    fprintf(stderr, "%llu buffers, peak %llu, lower bound %llu, %s\n",
            (unsigned long long)ap_packing_count(packing),
            (unsigned long long)ap_packing_peak(packing),
            (unsigned long long)ap_packing_lower_bound(packing), STATUS[status]);
    if (status == AP_STATUS_OPTIMAL || status == AP_STATUS_FEASIBLE) {
        rewind(file);
        write_offsets(file, ap_packing_offsets(packing));
    }

    fclose(file);
    ap_packing_free(packing);
    ap_problem_free(problem);
    return status == AP_STATUS_OPTIMAL || status == AP_STATUS_FEASIBLE ? 0 : 1;
}
