/* Wrong calls: each has its code and leaves a text, and nothing is read or written that is not there. */

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

/* A struct as a later version may have it. */
struct later {
    ap_options options;
    uint64_t more;
};

/* A changed problem, and one that does not fit. */
static void questions(void)
{
    const uint64_t old[4] = {0, 8, 0, AP_NO_OFFSET};
    ap_problem *problem = ap_problem_new();
    ap_packing *packing = NULL;
    ap_subset *subset = NULL;
    ap_options options = {.size = sizeof options, .capacity = 19};

    EXPECT(ap_problem_add(problem, 0, 2, 12, 1), OK, "");
    EXPECT(ap_problem_add(problem, 1, 4, 8, 1), OK, "");
    EXPECT(ap_problem_add(problem, 3, 5, 8, 1), OK, "");
    EXPECT(ap_problem_add(problem, 6, 7, 3, 1), OK, "");
    EXPECT(ap_repack(NULL, old, 4, NULL, &packing), INVALID_ARGUMENT, "problem is null");
    EXPECT(ap_repack(problem, NULL, 4, NULL, &packing), INVALID_ARGUMENT, "old is null");
    EXPECT(ap_repack(problem, old, 3, NULL, &packing), INVALID_ARGUMENT, "3 old offsets");
    HOLDS(packing == NULL);
    EXPECT(ap_repack(problem, old, 4, NULL, &packing), OK, "");
    HOLDS(ap_packing_peak(packing) == 20 && ap_packing_peak_of_staying(packing) == 20);
    HOLDS(ap_packing_offsets(packing)[0] == 0 && ap_packing_offsets(packing)[2] == 0);
    EXPECT(ap_packing_check(packing), OK, "");

    EXPECT(ap_infeasible_subset(problem, 1, NULL, &subset), INVALID_ARGUMENT, "no space 1");
    HOLDS(subset == NULL);
    EXPECT(ap_infeasible_subset(problem, 0, NULL, &subset), OK, "");
    HOLDS(ap_subset_count(subset) == 0);
    ap_subset_free(subset);
    EXPECT(ap_infeasible_subset(problem, 0, &options, &subset), OK, "");
    HOLDS(ap_subset_count(subset) == 2 && ap_subset_count(NULL) == 0);
    HOLDS(ap_subset_buffers(subset)[0] == 0 && ap_subset_buffers(subset)[1] == 1);
    HOLDS(ap_subset_buffers(NULL) == NULL && ap_packing_peak_of_staying(NULL) == 0);
    ap_subset_free(subset);
    ap_subset_free(NULL);
    ap_packing_free(packing);
    ap_problem_free(problem);
}

static void packing(void)
{
    ap_problem *problem = ap_problem_new();
    ap_packing *packing = NULL;
    ap_options options = {.size = sizeof options};
    struct later later = {.options = {.size = sizeof later}};
    ap_space space = {.size = sizeof space};
    ap_space_packing about = {.size = sizeof about};
    ap_buffer buffer = {.size = sizeof buffer};
    ap_gap gaps[2] = {{1, 3, 0, 0}, {2, 4, 0, 8}};
    ap_packing *const untouched = (ap_packing *)&options;

    EXPECT(ap_problem_add(NULL, 0, 1, 1, 1), INVALID_ARGUMENT, "problem is null");
    EXPECT(ap_problem_add(problem, 1, 1, 1, 1), INVALID_ARGUMENT, "1..1");
    EXPECT(ap_problem_add(problem, (uint64_t)-1, 5, 1, 1), INVALID_ARGUMENT, "615..5 is empty");
    EXPECT(ap_problem_add(problem, 0, 1, UINT64_C(1) << 63, 1), INVALID_ARGUMENT, "larger than any");
    EXPECT(ap_problem_add(problem, 0, 1, 1, UINT64_MAX), INVALID_ARGUMENT, "alignment 184467440");
    EXPECT(ap_problem_set_range(problem, 9, 0, 1), INVALID_ARGUMENT, "no buffer 9");
    EXPECT(ap_problem_set_group(problem, 9, 0), INVALID_ARGUMENT, "no buffer 9");
    EXPECT(ap_problem_may_overlap(problem, 9, 0), INVALID_ARGUMENT, "no buffer 9");
    EXPECT(ap_problem_keep_apart(problem, 9, 0), INVALID_ARGUMENT, "no buffer 9");
    EXPECT(ap_problem_keep_separate(problem, 9, 0), INVALID_ARGUMENT, "no buffer 9");
    EXPECT(ap_problem_set_spaces(problem, 9, NULL, 0), INVALID_ARGUMENT, "no buffer 9");
    EXPECT(ap_problem_reserve(problem, 9, 0, 1), INVALID_ARGUMENT, "no space 9");
    EXPECT(ap_problem_reserve(problem, 0, 1, 1), INVALID_ARGUMENT, "bytes 1..1: low must be below high");
    HOLDS(ap_problem_count(problem) == 0);
    HOLDS(ap_problem_count(NULL) == 0);

    /* Structs: no size, another size, flags and fields of later versions. */
    EXPECT(ap_problem_add_buffer(problem, NULL), INVALID_ARGUMENT, "buffer is null");
    buffer.size = 0;
    EXPECT(ap_problem_add_buffer(problem, &buffer), INVALID_ARGUMENT, "sizeof");
    buffer.size = UINT32_MAX;
    EXPECT(ap_problem_add_buffer(problem, &buffer), INVALID_ARGUMENT, "sizeof");
    buffer.size = sizeof buffer;
    buffer.flags = 1u << 31;
    EXPECT(ap_problem_add_buffer(problem, &buffer), UNSUPPORTED_VERSION, "flags");
    buffer.flags = 0;
    buffer.upper = 8;
    buffer.bytes = 16;
    buffer.space = 1;
    EXPECT(ap_problem_add_buffer(problem, &buffer), INVALID_ARGUMENT, "no space 1");
    EXPECT(ap_problem_set_space(problem, 2, &space), INVALID_ARGUMENT, "before space 1");
    space.alignment = (UINT64_C(1) << 62) + 1;
    EXPECT(ap_problem_set_space(problem, 1, &space), INVALID_ARGUMENT, "alignment 4611686018");
    space.alignment = 16;
    space.capacity = (uint64_t)-1;
    EXPECT(ap_problem_set_space(problem, 1, &space), INVALID_ARGUMENT, "larger than any");
    space.capacity = 0;
    EXPECT(ap_problem_set_space(problem, 1, &space), OK, "");
    buffer.gap_count = 2;
    EXPECT(ap_problem_add_buffer(problem, &buffer), INVALID_ARGUMENT, "gaps is null");
    buffer.gaps = gaps;
    EXPECT(ap_problem_add_buffer(problem, &buffer), OK, "");
    gaps[1].bytes_upper = 17;
    EXPECT(ap_problem_add_buffer(problem, &buffer), INVALID_ARGUMENT, "0..17 of 16");
    EXPECT(ap_problem_add(problem, 0, 8, 100, 0), OK, "");
    HOLDS(ap_problem_count(problem) == 2);

    EXPECT(ap_solve(NULL, NULL, &packing), INVALID_ARGUMENT, "problem is null");
    EXPECT(ap_solve(problem, NULL, NULL), INVALID_ARGUMENT, "result is null");
    options.capacity = 100;
    packing = untouched;
    EXPECT(ap_solve(problem, &options, &packing), INVALID_ARGUMENT, "one space");
    HOLDS(packing == NULL);
    options.capacity = (uint64_t)-1;
    EXPECT(ap_solve(problem, &options, &packing), INVALID_ARGUMENT, "larger than any");
    later.more = 1;
    EXPECT(ap_solve(problem, &later.options, &packing), UNSUPPORTED_VERSION, "too old");
    later.more = 0;
    EXPECT(ap_solve(problem, &later.options, &packing), OK, "");
    HOLDS(ap_packing_count(packing) == 2);
    HOLDS(ap_packing_peak(packing) == 116);
    EXPECT(ap_packing_check(packing), OK, "");
    EXPECT(ap_packing_space(packing, 2, &about), INVALID_ARGUMENT, "no space 2");
    EXPECT(ap_packing_space(packing, 1, NULL), INVALID_ARGUMENT, "space is null");
    EXPECT(ap_packing_space(packing, 1, &about), OK, "");
    HOLDS(about.peak == 16 && about.lower_bound == 16 && about.status == AP_STATUS_OPTIMAL);
    HOLDS(about.size == sizeof about);

    EXPECT(ap_packing_check(NULL), INVALID_ARGUMENT, "packing is null");
    HOLDS(ap_packing_offsets(NULL) == NULL && ap_packing_count(NULL) == 0);
    HOLDS(ap_packing_status(NULL) == AP_STATUS_UNKNOWN);
    HOLDS(ap_packing_peak(NULL) == 0 && ap_packing_lower_bound(NULL) == 0);
    ap_packing_free(packing);
    ap_packing_free(NULL);
    ap_problem_free(problem);
    ap_problem_free(NULL);
}

/* Time stamps as steps, an alignment that is no power of two, and lower offsets at the same peak. */
static void stamps(void)
{
    const uint64_t now = UINT64_C(1700000000000000000);
    ap_problem *problem = ap_problem_new();
    ap_packing *packing = NULL;
    ap_subset *subset = NULL;
    ap_options options = {.size = sizeof options};
    ap_space space = {.size = sizeof space, .alignment = 12};
    ap_gap gap = {now + 2, UINT64_MAX, 0, 0};
    ap_buffer buffer = {.size = sizeof buffer, .lower = 5, .upper = now + 9, .bytes = 20,
                        .gap_count = 1, .gaps = &gap};

    EXPECT(ap_problem_set_space(problem, 0, &space), OK, "");
    EXPECT(ap_problem_add_buffer(problem, &buffer), OK, "");
    EXPECT(ap_problem_add(problem, now + 1, now + 3, 30, 1), OK, "");
    buffer.gap_count = 0;
    buffer.lower = now + 3;
    buffer.flags = AP_BUFFER_HINTED;
    buffer.offset = 24;
    EXPECT(ap_problem_add_buffer(problem, &buffer), OK, "");
    options.flags = 1u << 31;
    EXPECT(ap_solve(problem, &options, &packing), UNSUPPORTED_VERSION, "options has flags");
    options.flags = 0;
    EXPECT(ap_solve(problem, &options, &packing), OK, "");
    HOLDS(ap_packing_peak(packing) == 54 && ap_packing_status(packing) == AP_STATUS_OPTIMAL);
    HOLDS(ap_packing_offsets(packing)[2] == 24);
    ap_packing_free(packing);
    options.flags = AP_OPTIONS_COMPACT;
    options.time_limit_ms = 60000;
    EXPECT(ap_repack(problem, &now, 1, &options, &packing), INVALID_ARGUMENT, "ap_solve");
    EXPECT(ap_infeasible_subset(problem, 0, &options, &subset), INVALID_ARGUMENT, "ap_solve");
    EXPECT(ap_solve(problem, &options, &packing), OK, "");
    HOLDS(ap_packing_peak(packing) == 54 && ap_packing_offsets(packing)[2] == 0);
    EXPECT(ap_packing_check(packing), OK, "");
    ap_packing_free(packing);
    ap_problem_free(problem);
}

/* Two fixed buffers on top of each other, and a problem without buffers. */
static void corners(void)
{
    ap_problem *problem = ap_problem_new();
    ap_packing *packing = NULL;
    ap_buffer buffer = {.size = sizeof buffer, .upper = 1, .bytes = 8};

    EXPECT(ap_solve(problem, NULL, &packing), OK, "");
    HOLDS(ap_packing_peak(packing) == 0 && ap_packing_status(packing) == AP_STATUS_OPTIMAL);
    ap_packing_free(packing);
    buffer.flags = AP_BUFFER_FIXED;
    EXPECT(ap_problem_add_buffer(problem, &buffer), OK, "");
    buffer.offset = 4;
    EXPECT(ap_problem_add_buffer(problem, &buffer), OK, "");
    EXPECT(ap_solve(problem, NULL, &packing), INVALID_ARGUMENT, "buffers 0 and 1");
    HOLDS(packing == NULL);
    ap_problem_free(problem);
}

/* Two buffers that are never in one space: the search chooses the space of each. */
static void banks(void)
{
    const uint32_t both[2] = {0, 1}, absent = 2;
    const ap_space small = {.size = sizeof small, .capacity = 64};
    ap_problem *problem = ap_problem_new();
    ap_packing *packing = NULL;

    EXPECT(ap_problem_set_space(problem, 1, &small), OK, "");
    EXPECT(ap_problem_add(problem, 0, 2, 60, 1), OK, "");
    EXPECT(ap_problem_add(problem, 5, 6, 100, 1), OK, "");
    EXPECT(ap_problem_set_spaces(problem, 0, both, 0), INVALID_ARGUMENT, "there is no space");
    EXPECT(ap_problem_set_spaces(problem, 0, NULL, 2), INVALID_ARGUMENT, "spaces is null");
    EXPECT(ap_problem_set_spaces(problem, 0, &absent, 1), INVALID_ARGUMENT, "no space 2");
    EXPECT(ap_problem_keep_separate(problem, 1, 0), OK, "");
    EXPECT(ap_solve(problem, NULL, &packing), INVALID_ARGUMENT, "buffer 0: it and buffer 1 are");
    EXPECT(ap_problem_set_spaces(problem, 0, both, 2), OK, "");
    EXPECT(ap_problem_set_spaces(problem, 1, both, 2), OK, "");
    EXPECT(ap_solve(problem, NULL, &packing), OK, "");
    HOLDS(ap_packing_space_of(packing, 0) == 1);
    HOLDS(ap_packing_space_of(packing, 1) == 0);
    HOLDS(ap_packing_space_of(packing, 2) == UINT32_MAX);
    HOLDS(ap_packing_space_of(NULL, 0) == UINT32_MAX);
    HOLDS(ap_packing_peak(packing) == 160);
    EXPECT(ap_packing_check(packing), OK, "");
    ap_packing_free(packing);
    ap_problem_free(problem);
}

static void plans(const char *path)
{
    static const char garbage[] = "{\"format\": \"arenaplan\", \"version\": 1}";
    static const char later[] = "{\"format\": \"arenaplan\", \"version\": 2}";
    ap_plan *plan = NULL;
    ap_arena *arena = NULL;
    ap_plan_info info = {.size = sizeof info};
    ap_plan_space_info space = {.size = sizeof space};
    ap_plan_value_info place = {.size = sizeof place};
    ap_plan_step_info step = {.size = sizeof step};
    ap_step_memory operands = {.size = sizeof operands};
    ap_memory memory;
    uint32_t value;
    char *bytes;

    EXPECT(ap_plan_load(NULL, 0, &plan), INVALID_ARGUMENT, "path is null");
    EXPECT(ap_plan_load("\xff", 0, &plan), INVALID_ARGUMENT, "UTF-8");
    EXPECT(ap_plan_load("no/such/file", 0, &plan), FILE_UNREADABLE, "'no/such/file'");
    EXPECT(ap_plan_load(path, 10, &plan), INVALID_FILE, "limit of 10");
    EXPECT(ap_plan_load(path, 0, NULL), INVALID_ARGUMENT, "result is null");
    EXPECT(ap_plan_parse(NULL, 3, &plan), INVALID_ARGUMENT, "text is null");
    EXPECT(ap_plan_parse(NULL, 0, &plan), INVALID_FILE, "EOF");
    EXPECT(ap_plan_parse(garbage, (size_t)-1, &plan), INVALID_ARGUMENT, "more than memory");
    EXPECT(ap_plan_parse(garbage, sizeof garbage - 1, &plan), INVALID_FILE, "missing field");
    EXPECT(ap_plan_parse(later, sizeof later - 1, &plan), UNSUPPORTED_VERSION, "version 2");
    HOLDS(plan == NULL);

    EXPECT(ap_plan_load(path, 0, &plan), OK, "");
    EXPECT(ap_plan_describe(NULL, &info), INVALID_ARGUMENT, "plan is null");
    EXPECT(ap_plan_describe(plan, &info), OK, "");
    EXPECT(ap_plan_space(plan, info.space_count, &space), INVALID_ARGUMENT, "no space");
    EXPECT(ap_plan_space(plan, 0, &space), OK, "");
    EXPECT(ap_plan_value(plan, info.value_count, &place), INVALID_ARGUMENT, "no value");
    EXPECT(ap_plan_value(plan, AP_NONE, &place), INVALID_ARGUMENT, "no value");
    EXPECT(ap_plan_step(plan, info.step_count, &step), INVALID_ARGUMENT, "no step");
    EXPECT(ap_plan_find(plan, "nothing", &value), NOT_FOUND, "'nothing'");
    HOLDS(value == AP_NONE);
    EXPECT(ap_plan_find(plan, NULL, &value), INVALID_ARGUMENT, "name is null");
    EXPECT(ap_plan_find(plan, "w", &value), NOT_FOUND, "'w'");
    EXPECT(ap_plan_find(plan, "x", &value), OK, "");
    EXPECT(ap_plan_value(plan, value, &place), OK, "");
    HOLDS(strcmp(place.name, "x") == 0);

    /* Memory that is too small, misaligned, null, or of too few spaces. */
    bytes = malloc((size_t)(space.bytes + 2 * space.alignment));
    if (bytes == NULL)
        exit(2);
    memory.pointer = bytes + (space.alignment - (uintptr_t)bytes % space.alignment);
    memory.bytes = (size_t)space.bytes;
    EXPECT(ap_arena_bind(NULL, memory.pointer, memory.bytes, &arena), INVALID_ARGUMENT, "plan");
    EXPECT(ap_arena_bind(plan, NULL, memory.bytes, &arena), INVALID_ARGUMENT, "memory 0 is null");
    EXPECT(ap_arena_bind(plan, memory.pointer, memory.bytes - 1, &arena), MEMORY_TOO_SMALL, "has");
    EXPECT(ap_arena_bind(plan, (char *)memory.pointer + 1, memory.bytes, &arena),
           MEMORY_MISALIGNED, "a multiple of 64");
    EXPECT(ap_arena_bind_spaces(plan, NULL, 1, &arena), INVALID_ARGUMENT, "memories is null");
    EXPECT(ap_arena_bind_spaces(plan, NULL, 0, &arena), INVALID_ARGUMENT, "0 memories");
    HOLDS(arena == NULL);
    EXPECT(ap_arena_bind_spaces(plan, &memory, 1, &arena), OK, "");
    EXPECT(ap_arena_value(arena, value, NULL), INVALID_ARGUMENT, "memory is null");
    EXPECT(ap_arena_value(arena, info.value_count, &memory), INVALID_ARGUMENT, "no value");
    EXPECT(ap_arena_step(arena, info.step_count, &operands), INVALID_ARGUMENT, "no step");
    EXPECT(ap_arena_step(arena, 0, NULL), INVALID_ARGUMENT, "step is null");
    ap_arena_free(arena);
    ap_arena_free(NULL);
    free(bytes);

    /* An arena of its own, which outlives the plan's handle. */
    EXPECT(ap_arena_allocate(plan, &arena), OK, "");
    ap_plan_free(plan);
    ap_plan_free(NULL);
    EXPECT(ap_arena_value(arena, value, &memory), OK, "");
    memset(memory.pointer, 1, memory.bytes);
    EXPECT(ap_arena_step(arena, 0, &operands), OK, "");
    HOLDS(operands.input_count == 2 && operands.inputs[0].pointer == memory.pointer);
    HOLDS(operands.inputs[1].access == AP_ACCESS_EXTERNAL && operands.inputs[1].pointer == NULL);
    ap_arena_free(arena);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    HOLDS(strcmp(ap_last_error(), "") == 0);
    HOLDS(ap_version() ==
          (AP_VERSION_MAJOR << 16 | AP_VERSION_MINOR << 8 | AP_VERSION_PATCH));
    packing();
    questions();
    stamps();
    banks();
    corners();
    plans(argv[1]);
    return failures > 0;
}
