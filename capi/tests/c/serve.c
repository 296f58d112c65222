/* What a server does: plan a graph, run steps on two threads, lease memory: serve GRAPH. */

#include <pthread.h>
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

/* Counts reports, and ends a search in one of two ways. */
struct listener {
    int calls;
    int stops;
    ap_cancel *cancel;
    uint64_t peak;
};

static int32_t hear(void *context, const ap_progress *progress)
{
    struct listener *listener = context;

    listener->calls++;
    listener->peak = progress->peak;
    HOLDS(progress->size >= sizeof *progress && strlen(progress->stage) > 0);
    if (listener->cancel != NULL)
        ap_cancel_request(listener->cancel);
    return listener->stops;
}

/* Buffers that no search packs at their bound in a short time. */
static ap_problem *hard(void)
{
    ap_problem *problem = ap_problem_new();
    uint64_t state = 7;
    int i;

    for (i = 0; i < 400; i++) {
        uint64_t lower, length, bytes;

        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        lower = (state >> 33) % 300;
        length = 5 + (state >> 45) % 90;
        bytes = 1 + (state >> 20) % 9973;
        EXPECT(ap_problem_add(problem, lower, lower + length, bytes, 1), OK, "");
    }
    return problem;
}

static void searches(const char *graph, size_t bytes)
{
    ap_problem *problem = hard();
    ap_packing *packing = NULL;
    ap_plan *plan = NULL;
    ap_cancel *cancel = ap_cancel_new();
    struct listener listener = {0};
    ap_options options = {.size = sizeof options, .progress = hear, .context = &listener};
    ap_plan_options planning = {.size = sizeof planning, .cancel = cancel};

    /* A result other than 0 ends the search: it is not told of any more. */
    listener.stops = 1;
    EXPECT(ap_solve(problem, &options, &packing), OK, "");
    HOLDS(listener.calls == 1);
    EXPECT(ap_packing_check(packing), OK, "");
    ap_packing_free(packing);

    /* So does a request, also for later searches. */
    listener.stops = 0;
    listener.calls = 0;
    listener.cancel = cancel;
    options.cancel = cancel;
    EXPECT(ap_solve(problem, &options, &packing), OK, "");
    HOLDS(listener.calls == 1);
    ap_packing_free(packing);
    options.progress = NULL;
    EXPECT(ap_solve(problem, &options, &packing), OK, "");
    HOLDS(ap_packing_peak(packing) >= ap_packing_lower_bound(packing));
    ap_packing_free(packing);
    EXPECT(ap_plan_make(graph, bytes, &planning, &plan), OK, "");
    ap_plan_free(plan);
    ap_cancel_request(NULL);
    ap_cancel_free(NULL);
    ap_cancel_free(cancel);

    /* Programs that were compiled before there was progress. */
    options.size = 40;
    options.node_limit = 10;
    EXPECT(ap_solve(problem, &options, &packing), OK, "");
    ap_packing_free(packing);
    ap_problem_free(problem);
}

static ap_plan *planned(const char *graph, size_t bytes)
{
    ap_plan *plan = NULL;
    ap_plan_options options = {.size = sizeof options, .workers = 2};
    ap_plan_info info = {.size = sizeof info};
    ap_plan_step_info step = {.size = sizeof step};
    struct listener listener = {0};
    uint32_t i;

    EXPECT(ap_plan_make(NULL, 3, NULL, &plan), INVALID_ARGUMENT, "graph is null");
    EXPECT(ap_plan_make(graph, bytes / 2, NULL, &plan), INVALID_FILE, "not a valid graph");
    options.target = "abacus";
    EXPECT(ap_plan_make(graph, bytes, &options, &plan), NOT_FOUND, "'abacus'");
    options.target = NULL;
    options.effort = 7;
    EXPECT(ap_plan_make(graph, bytes, &options, &plan), INVALID_ARGUMENT, "effort 7");
    options.effort = AP_EFFORT_FAST;
    options.flags = AP_PLAN_PARALLEL_SAFE;
    EXPECT(ap_plan_make(graph, bytes, &options, &plan), INVALID_ARGUMENT, "workers");
    options.flags = 1u << 30;
    EXPECT(ap_plan_make(graph, bytes, &options, &plan), UNSUPPORTED_VERSION, "flags");
    options.flags = 0;
    options.progress = hear;
    options.context = &listener;
    EXPECT(ap_plan_make(graph, bytes, &options, NULL), INVALID_ARGUMENT, "result is null");
    EXPECT(ap_plan_make(graph, bytes, &options, &plan), OK, "");
    HOLDS(listener.calls > 0);
    EXPECT(ap_plan_check(plan, graph, bytes), OK, "");
    EXPECT(ap_plan_describe(plan, &info), OK, "");
    printf("%llu bytes\n", (unsigned long long)info.arena_bytes);
    for (i = 0; i < info.step_count; i++) {
        EXPECT(ap_plan_step(plan, i, &step), OK, "");
        printf("%s %s\n", step.name, step.op);
    }
    return plan;
}

static void hazards(const ap_plan *plan, const char *graph, size_t bytes)
{
    ap_hazards *hazards = NULL, *again = NULL;
    const ap_hazard *edges = NULL;
    uint32_t step, count, i, total = 0;
    ap_plan_info info = {.size = sizeof info};

    EXPECT(ap_plan_describe(plan, &info), OK, "");
    EXPECT(ap_hazards_make(NULL, NULL, 0, &hazards), INVALID_ARGUMENT, "plan is null");
    EXPECT(ap_hazards_make(plan, NULL, 4, &hazards), INVALID_ARGUMENT, "graph is null");
    EXPECT(ap_hazards_make(plan, NULL, 0, &hazards), OK, "");
    EXPECT(ap_hazards_make(plan, graph, bytes, &again), OK, "");
    HOLDS(ap_hazards_count(hazards) == ap_hazards_count(again));
    ap_hazards_free(again);
    for (step = 0; step < info.step_count; step++) {
        EXPECT(ap_hazards_of(hazards, step, &edges, &count), OK, "");
        total += count;
        for (i = 0; i < count; i++) {
            HOLDS(edges[i].after == step);
            printf("%u waits for %u (%d)\n", (unsigned)step, (unsigned)edges[i].before,
                   (int)edges[i].kind);
        }
    }
    HOLDS(total == ap_hazards_count(hazards));
    HOLDS(ap_hazards_edges(hazards)[0].after <= ap_hazards_edges(hazards)[total - 1].after);
    EXPECT(ap_hazards_of(hazards, step, &edges, &count), INVALID_ARGUMENT, "no step");
    HOLDS(edges == NULL && count == 0);
    HOLDS(ap_hazards_edges(NULL) == NULL && ap_hazards_count(NULL) == 0);
    ap_hazards_free(hazards);
    ap_hazards_free(NULL);
}

/* A source of blocks that counts. */
struct source {
    int blocks;
    uint64_t bytes;
};

static void *take(void *context, uint64_t bytes, uint64_t alignment)
{
    struct source *source = context;
    void *memory = NULL;

    if (source->blocks >= 3 || posix_memalign(&memory, (size_t)alignment, (size_t)bytes) != 0)
        return NULL;
    source->blocks++;
    source->bytes += bytes;
    return memory;
}

static void release(void *context, void *memory, uint64_t bytes)
{
    struct source *source = context;

    source->blocks--;
    source->bytes -= bytes;
    free(memory);
}

struct waiter {
    const ap_pool *pool;
    const ap_plan *plan;
};

/* Waits for a lease, and gives it back. */
static void *wait_for_lease(void *context)
{
    const struct waiter *waiter = context;
    ap_arena *arena = NULL;

    EXPECT(ap_pool_lease(waiter->pool, waiter->plan, AP_FOREVER, &arena), OK, "");
    ap_arena_free(arena);
    return NULL;
}

/* Waits in vain. */
static void *wait_in_vain(void *context)
{
    const struct waiter *waiter = context;
    ap_arena *arena = NULL;

    EXPECT(ap_pool_lease(waiter->pool, waiter->plan, 1, &arena), POOL_BUSY, "8192");
    HOLDS(arena == NULL);
    return NULL;
}

static void pools(const ap_plan *plan)
{
    ap_pool *pool = NULL;
    ap_arena *first = NULL, *second = NULL, *third = NULL;
    ap_pool_options options = {.size = sizeof options, .cap = 4096};
    ap_pool_numbers numbers = {.size = sizeof numbers};
    ap_memory memory = {0}, other = {0};
    ap_step_memory step = {.size = sizeof step};
    struct source source = {0};
    struct waiter waiter;
    pthread_t thread;

    options.flags = 1u << 30;
    EXPECT(ap_pool_make(&options, &pool), UNSUPPORTED_VERSION, "flags");
    options.flags = 0;
    options.allocate = take;
    EXPECT(ap_pool_make(&options, &pool), INVALID_ARGUMENT, "both of its functions");
    options.deallocate = release;
    options.context = &source;
    options.cap = 64;
    EXPECT(ap_pool_make(&options, &pool), OK, "");
    EXPECT(ap_pool_lease(pool, plan, 0, &first), LEASE_TOO_LARGE, "cap");
    ap_pool_free(pool);

    /* Two runs at a time. */
    options.cap = 2 * 4096;
    options.flags = AP_POOL_CLEAR;
    EXPECT(ap_pool_make(&options, &pool), OK, "");
    EXPECT(ap_pool_lease(NULL, plan, 0, &first), INVALID_ARGUMENT, "pool is null");
    EXPECT(ap_pool_lease(pool, NULL, 0, &first), INVALID_ARGUMENT, "plan is null");
    EXPECT(ap_pool_lease(pool, plan, 0, &first), OK, "");
    EXPECT(ap_pool_lease(pool, plan, AP_FOREVER, &second), OK, "");
    EXPECT(ap_pool_lease(pool, plan, 0, &third), POOL_BUSY, "8192");
    waiter.pool = pool;
    waiter.plan = plan;
    if (pthread_create(&thread, NULL, wait_in_vain, &waiter) != 0)
        exit(2);
    pthread_join(thread, NULL);
    HOLDS(third == NULL && source.blocks == 2 && source.bytes == 2 * 4096);
    EXPECT(ap_arena_value(first, 0, &memory), OK, "");
    EXPECT(ap_arena_value(second, 0, &other), OK, "");
    HOLDS(memory.pointer != other.pointer && memory.bytes == other.bytes);
    memset(memory.pointer, 9, memory.bytes);
    if (pthread_create(&thread, NULL, wait_for_lease, &waiter) != 0)
        exit(2);
    ap_arena_free(first);
    pthread_join(thread, NULL);

    /* The same memory again, of which the addresses are settled, and cleared. */
    EXPECT(ap_pool_lease(pool, plan, 0, &first), OK, "");
    EXPECT(ap_arena_value(first, 0, &other), OK, "");
    HOLDS(memory.pointer == other.pointer && ((unsigned char *)other.pointer)[0] == 0);
    EXPECT(ap_arena_step(first, 0, &step), OK, "");
    HOLDS(step.input_count > 0 && step.inputs[0].pointer == memory.pointer);
    EXPECT(ap_pool_describe(pool, &numbers), OK, "");
    HOLDS(numbers.leases == 4 && numbers.allocated == 2 && numbers.reused == 2);
    HOLDS(numbers.leased_bytes == 2 * 4096 && numbers.free_bytes == 0 && numbers.refused == 2);
    HOLDS(numbers.peak_bytes == 2 * 4096 && numbers.waiting == 0);
    ap_arena_free(second);
    HOLDS(ap_pool_trim(pool, 0) == 4096 && ap_pool_trim(NULL, 0) == 0);
    HOLDS(source.blocks == 1);
    EXPECT(ap_pool_describe(NULL, &numbers), INVALID_ARGUMENT, "pool is null");

    /* An arena outlives its pool. */
    ap_pool_free(pool);
    ap_pool_free(NULL);
    memset(other.pointer, 1, other.bytes);
    ap_arena_free(first);
    HOLDS(source.blocks == 0 && source.bytes == 0);

    /* A source that has nothing. */
    source.blocks = 3;
    EXPECT(ap_pool_make(&options, &pool), OK, "");
    EXPECT(ap_pool_lease(pool, plan, 0, &first), OUT_OF_MEMORY, "");
    HOLDS(first == NULL);
    ap_pool_free(pool);
    EXPECT(ap_pool_make(NULL, &pool), OK, "");
    EXPECT(ap_pool_lease(pool, plan, 0, &first), OK, "");
    ap_arena_free(first);
    ap_pool_free(pool);
}

int main(int argc, char **argv)
{
    FILE *file;
    ap_plan *plan;
    char *graph = malloc(1 << 20);
    size_t bytes;

    if (argc != 2 || graph == NULL || (file = fopen(argv[1], "rb")) == NULL)
        return 2;
    bytes = fread(graph, 1, 1 << 20, file);
    fclose(file);
    plan = planned(graph, bytes);
    hazards(plan, graph, bytes);
    searches(graph, bytes);
    pools(plan);
    ap_plan_free(plan);
    free(graph);
    return failures > 0;
}
