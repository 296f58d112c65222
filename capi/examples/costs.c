/* Plans a graph file by the costs of its steps: costs GRAPH.json [MAX_SLOWDOWN]
 *
 * The kernels of this program take a microsecond for each node. Nodes that run as one are made tile
 * by tile: in a quarter of the scratch memory they take four times as long. */
#include <stdio.h>
#include <stdlib.h>
#include <arenaplan.h>

static size_t cost(void *context, const uint32_t *nodes, size_t count, ap_way *ways)
{
    size_t at;

    (void)context;
    (void)nodes;
    if (count == 1) {
        ways[0].bytes = 0;
        ways[0].nanoseconds = 1000;
        return 1;
    }
    for (at = 0; at < 3; at++) {
        ways[at].bytes = (uint64_t)4096 << (2 * at);
        ways[at].nanoseconds = (uint64_t)(500 * count) << (3 - at);
    }
    return 3;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    ap_plan_options options = {.size = sizeof options, .target = "numpy", .costs = cost};
    ap_plan_info info = {.size = sizeof info};
    ap_plan *plan = NULL;
    size_t bytes;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;

    if (file == NULL) {
        fprintf(stderr, "usage: costs GRAPH.json [MAX_SLOWDOWN in thousandths]\n");
        return 2;
    }
    bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    if (argc > 2)
        options.max_slowdown = strtoull(argv[2], NULL, 10);
    if (ap_plan_make(text, bytes, &options, &plan) != AP_CODE_OK ||
        ap_plan_describe(plan, &info) != AP_CODE_OK) {
        fprintf(stderr, "%s\n", ap_last_error());
        return 1;
    }
    printf("%llu bytes, %u steps\n", (unsigned long long)info.arena_bytes,
           (unsigned)info.step_count);
    ap_plan_free(plan);
    return 0;
}
