/* A model file with three shapes: model FILE GRAPH OTHER_GRAPH, graphs of the first two shapes. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arenaplan.h"

static int failures = 0;

/* Compares a code, and the text that belongs to it. */
static void expect(int line, ap_code found, ap_code code, const char *text)
{
    if (found != code || (code != AP_CODE_OK && strstr(ap_last_error(), text) == NULL)) {
        fprintf(stderr, "line %d: code %d, not %d: %s\n", line, (int)found, (int)code,
                ap_last_error());
        failures++;
    }
}

#define EXPECT(call, code, text) expect(__LINE__, call, AP_CODE_##code, text)
#define HOLDS(fact) (void)((fact) || (fprintf(stderr, "line %d: %s\n", __LINE__, #fact), failures++))

/* Reads a file into memory that the caller frees. */
static char *content(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc(1 << 20);

    if (file == NULL || text == NULL)
        exit(2);
    *bytes = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    ap_model *model = NULL;
    ap_plan *plan = NULL;
    ap_arena *arena = NULL;
    ap_model_info info = {.size = sizeof info};
    ap_model_shape_info shape = {.size = sizeof shape};
    ap_plan_info plan_info = {.size = sizeof plan_info};
    ap_plan_step_info step = {.size = sizeof step};
    ap_dim dims[2] = {{"batch", 4}, {"batch", 2}};
    size_t bytes, graph_bytes, other_bytes;
    char *graph, *other, *text;
    uint32_t index, i;

    if (argc != 4)
        return 2;
    graph = content(argv[2], &graph_bytes);
    other = content(argv[3], &other_bytes);

    EXPECT(ap_model_load(NULL, 0, &model), INVALID_ARGUMENT, "path is null");
    EXPECT(ap_model_load(argv[1], 0, NULL), INVALID_ARGUMENT, "result is null");
    EXPECT(ap_model_load(argv[1], 10, &model), INVALID_FILE, "limit of 10");
    EXPECT(ap_model_load(argv[2], 0, &model), INVALID_FILE, "not a valid model");
    EXPECT(ap_model_parse(graph, graph_bytes, &model), INVALID_FILE, "not a valid model");
    HOLDS(model == NULL);
    text = content(argv[1], &bytes);
    EXPECT(ap_model_parse(text, bytes / 2, &model), INVALID_FILE, "not a valid model");
    EXPECT(ap_model_parse(text, bytes, &model), OK, "");
    free(text);
    ap_model_free(model);
    EXPECT(ap_model_load(argv[1], 0, &model), OK, "");

    EXPECT(ap_model_describe(NULL, &info), INVALID_ARGUMENT, "model is null");
    EXPECT(ap_model_describe(model, &info), OK, "");
    HOLDS(info.shape_count == 3 && info.dim_count == 1);
    HOLDS(strcmp(info.name, "layer") == 0 && strcmp(info.dims[0], "batch") == 0);
    for (i = 0; i < info.shape_count; i++) {
        EXPECT(ap_model_shape(model, i, &shape), OK, "");
        HOLDS(shape.dim_count == 1);
        printf("%s=%u %llu\n", info.dims[0], (unsigned)shape.sizes[0],
               (unsigned long long)shape.arena_bytes);
        HOLDS(shape.arena_bytes <= info.arena_bytes);
    }
    EXPECT(ap_model_shape(model, 3, &shape), INVALID_ARGUMENT, "no shape 3");

    EXPECT(ap_model_find(model, dims, 1, 0, &index), OK, "");
    HOLDS(index == 2);
    dims[0].size = 3;
    EXPECT(ap_model_find(model, dims, 1, 0, &index), NOT_FOUND, "nearest is batch=2");
    HOLDS(index == AP_NONE);
    EXPECT(ap_model_find(model, dims, 1, AP_FIND_PADDED, &index), OK, "");
    HOLDS(index == 2);
    EXPECT(ap_model_find(model, dims, 1, 8, &index), UNSUPPORTED_VERSION, "flags");
    EXPECT(ap_model_find(model, dims, 2, 0, &index), INVALID_ARGUMENT, "two");
    EXPECT(ap_model_find(model, NULL, 0, 0, &index), INVALID_ARGUMENT, "several sizes");
    EXPECT(ap_model_find(model, NULL, 1, 0, &index), INVALID_ARGUMENT, "dims is null");
    dims[0].name = NULL;
    EXPECT(ap_model_find(model, dims, 1, 0, &index), INVALID_ARGUMENT, "name is null");
    dims[0].name = "time";
    EXPECT(ap_model_find(model, dims, 1, 0, &index), NOT_FOUND, "'time'");

    EXPECT(ap_model_plan(model, 3, &plan), INVALID_ARGUMENT, "no shape 3");
    HOLDS(plan == NULL);
    EXPECT(ap_model_plan(model, 0, &plan), OK, "");
    ap_model_free(model);
    ap_model_free(NULL);
    EXPECT(ap_plan_describe(plan, &plan_info), OK, "");
    for (i = 0; i < plan_info.step_count; i++) {
        EXPECT(ap_plan_step(plan, i, &step), OK, "");
        printf("%s %s\n", step.name, step.op);
    }
    EXPECT(ap_plan_check(plan, graph, graph_bytes), OK, "");
    EXPECT(ap_plan_check(plan, other, other_bytes), CHECK_FAILED, "does not belong");
    EXPECT(ap_plan_check(plan, graph, graph_bytes / 2), INVALID_FILE, "not a valid graph");
    EXPECT(ap_plan_check(plan, NULL, 4), INVALID_ARGUMENT, "graph is null");
    EXPECT(ap_arena_allocate(plan, &arena), OK, "");
    ap_arena_free(arena);
    ap_plan_free(plan);
    free(graph);
    free(other);
    return failures > 0;
}
