/*
 * arenaplan: where every tensor of a neural network lives in one arena.
 *
 * Written by cbindgen from capi/src: do not edit; run `make header`.
 *
 * Handles. A function that makes a handle gives it to the caller, who frees it with the function of
 * its type. Strings and arrays that a function returns belong to the handle, and live as long.
 *
 * Errors. A function that can fail returns an ap_code; AP_CODE_OK is 0. ap_last_error() has the
 * reason, per thread. Arguments are checked as far as C allows: null pointers, sizes, numbers out of
 * range. A function that failed changed nothing; a handle that it should have made is null.
 *
 * Contract. A pointer is null or points to an object of its type; a handle was made here and not
 * freed; a string ends with a zero; an array has as many elements as the number beside it says.
 *
 * Structs. A struct that begins with `size` may grow in later versions. Set it to zeros, and `size`
 * to its sizeof: ap_options options = {.size = sizeof options};
 *
 * Threads. A handle that is passed as a const pointer may be used by any number of threads at the
 * same time. A handle that is not const is used by one thread at a time.
 *
 * Units. Sizes, offsets and alignments are in bytes. Ranges are half-open: `lower` is the first,
 * `upper` the one behind the last.
 */


#ifndef ARENAPLAN_H
#define ARENAPLAN_H

#include <stddef.h>
#include <stdint.h>

/**
 * Header version. The header is compatible with libraries that have the same major version (the
 * same minor version while the major version is 0) and are not older.
 */
#define AP_VERSION_MAJOR 0

/**
 * Second number of the version.
 */
#define AP_VERSION_MINOR 1

/**
 * Third number of the version.
 */
#define AP_VERSION_PATCH 0

/**
 * In an array of old offsets: the buffer has no old offset.
 */
#define AP_NO_OFFSET UINT64_MAX

/**
 * The number for an absent value or node.
 */
#define AP_NONE UINT32_MAX

/**
 * Flag of options: buffers are moved to lower offsets at last, until none can move alone.
 */
#define AP_OPTIONS_COMPACT 1

/**
 * Most ways that a step can run in.
 */
#define AP_MOST_WAYS 16

/**
 * Plan flag: the plan is safe in every order that the graph permits.
 */
#define AP_PLAN_PARALLEL_SAFE 1

/**
 * Plan flag: inputs keep their bytes until the run ends.
 */
#define AP_PLAN_PRESERVE_INPUTS 2

/**
 * Plan flag: inputs are in the caller's memory, a space each.
 */
#define AP_PLAN_CALLER_INPUTS 4

/**
 * Plan flag: outputs are in the caller's memory, a space each.
 */
#define AP_PLAN_CALLER_OUTPUTS 8

/**
 * Milliseconds of effort.
 */
#define AP_EFFORT_FAST 1

/**
 * Up to a minute or two of effort.
 */
#define AP_EFFORT_MAX 2

/**
 * Pool flag: returned blocks are filled with zeros.
 */
#define AP_POOL_CLEAR 1

/**
 * Pool flag: no free blocks are kept.
 */
#define AP_POOL_KEEP_NOTHING 2

/**
 * A wait without a time limit.
 */
#define AP_FOREVER UINT64_MAX

/**
 * Buffer flag: `offset` is the offset that the buffer must have.
 */
#define AP_BUFFER_FIXED 1

/**
 * Buffer flag: `offset` is tried first.
 */
#define AP_BUFFER_HINTED 2

/**
 * Flag of `ap_model_find`: if the shape was not planned, the smallest shape that is at least as
 * large in every dimension is found.
 */
#define AP_FIND_PADDED 1

/**
 * Result of a call. The numbers are part of the ABI.
 */
typedef enum ap_code {
    /**
     * The call succeeded.
     */
    AP_CODE_OK = 0,
    /**
     * An argument is null, out of range, or contradicts another argument.
     */
    AP_CODE_INVALID_ARGUMENT = 1,
    /**
     * There is no value, dimension or shape of that name or size, or the value has no place.
     */
    AP_CODE_NOT_FOUND = 2,
    /**
     * The file cannot be read.
     */
    AP_CODE_FILE_UNREADABLE = 3,
    /**
     * The file is larger than the limit, damaged, or holds something else.
     */
    AP_CODE_INVALID_FILE = 4,
    /**
     * This library does not know the version of the file, or of the caller's struct.
     */
    AP_CODE_UNSUPPORTED_VERSION = 5,
    /**
     * A plan or packing is not a valid answer for the given graph or problem.
     */
    AP_CODE_CHECK_FAILED = 6,
    /**
     * The caller's memory has fewer bytes than the plan needs.
     */
    AP_CODE_MEMORY_TOO_SMALL = 7,
    /**
     * The caller's memory begins at an address that is less aligned than the plan needs.
     */
    AP_CODE_MEMORY_MISALIGNED = 8,
    /**
     * An allocation failed.
     */
    AP_CODE_OUT_OF_MEMORY = 9,
    /**
     * A defect of this library. Only freeing the call's handles is safe then.
     */
    AP_CODE_INTERNAL = 10,
    /**
     * The pool's memory is leased to others.
     */
    AP_CODE_POOL_BUSY = 11,
    /**
     * The plan needs more bytes than the pool may have.
     */
    AP_CODE_LEASE_TOO_LARGE = 12,
} ap_code;

/**
 * How a step uses an operand.
 */
typedef enum ap_access {
    /**
     * The operand is left out, or the bytes are never read. `pointer` is null.
     */
    AP_ACCESS_ABSENT = 0,
    /**
     * The operand has no place in the plan: a constant, which the program has. `pointer` is null.
     */
    AP_ACCESS_EXTERNAL = 1,
    /**
     * The step reads the bytes. If the step mutates the operand as a state, the step writes the
     * bytes, too.
     */
    AP_ACCESS_READ = 2,
    /**
     * The step writes the bytes.
     */
    AP_ACCESS_WRITE = 3,
    /**
     * The bytes belong to an input, and already have the final content: not to be written.
     */
    AP_ACCESS_VIEW = 4,
} ap_access;

/**
 * The reason why a step must wait for another step; the first of several reasons.
 */
typedef enum ap_hazard_kind {
    /**
     * The later step reads a value, or bytes, that the earlier step writes.
     */
    AP_HAZARD_KIND_DATA = 0,
    /**
     * The later step writes bytes that the earlier step reads.
     */
    AP_HAZARD_KIND_WRITE_AFTER_READ = 1,
    /**
     * The later step writes bytes that the earlier step writes.
     */
    AP_HAZARD_KIND_WRITE_AFTER_WRITE = 2,
    /**
     * The graph demands the order, and no byte does.
     */
    AP_HAZARD_KIND_CONTROL = 3,
} ap_hazard_kind;

/**
 * A size's proven status.
 */
typedef enum ap_status {
    /**
     * The size is the smallest possible.
     */
    AP_STATUS_OPTIMAL = 0,
    /**
     * The size fits the capacity, and may not be the smallest possible.
     */
    AP_STATUS_FEASIBLE = 1,
    /**
     * The size exceeds the capacity, and no smaller size fits: proven.
     */
    AP_STATUS_INFEASIBLE = 2,
    /**
     * The size exceeds the capacity; a smaller size may exist.
     */
    AP_STATUS_UNKNOWN = 3,
} ap_status;

/**
 * The reason why an output and an input of a step share bytes.
 */
typedef enum ap_share_rule {
    /**
     * The smaller operand shows the larger operand's bytes unchanged: the step need not write the
     * bytes.
     */
    AP_SHARE_RULE_VIEW = 0,
    /**
     * The output takes over the bytes of an input that dies: the step works in place.
     */
    AP_SHARE_RULE_IN_PLACE = 1,
    /**
     * The output begins before a dying input and overlaps the input: the step makes the output in
     * order, and reads each byte for the last time before writing there.
     */
    AP_SHARE_RULE_OVERLAP = 2,
} ap_share_rule;

/**
 * Memory that a plan was bound to, and the address of every operand in every step.
 *
 * An arena never changes; any number of threads may ask for addresses. Two runs at the same time
 * need two memories.
 */
typedef struct ap_arena ap_arena;

/**
 * A request to end searches. Any number of threads may use the request at the same time.
 */
typedef struct ap_cancel ap_cancel;

/**
 * The dependencies between a plan's steps, without implied dependencies.
 *
 * Hazards never change; any number of threads may use hazards at the same time.
 */
typedef struct ap_hazards ap_hazards;

/**
 * A model: a checked plan for each permitted shape.
 *
 * A model never changes; any number of threads may use a model at the same time.
 */
typedef struct ap_model ap_model;

/**
 * Offsets for a problem's buffers, with proven status.
 */
typedef struct ap_packing ap_packing;

/**
 * A plan: a place for every value, and one memory per space.
 *
 * A plan never changes; any number of threads may use a plan at the same time.
 */
typedef struct ap_plan ap_plan;

/**
 * A source of arenas below one cap in bytes.
 *
 * Any number of threads may use a pool at the same time.
 */
typedef struct ap_pool ap_pool;

/**
 * Buffers to place, and the memories to place them in.
 *
 * A problem begins with space 0, which is unlimited. Buffers are numbered from 0, as added.
 */
typedef struct ap_problem ap_problem;

/**
 * Numbers of buffers that together do not fit a space.
 */
typedef struct ap_subset ap_subset;

/**
 * Bytes in memory.
 *
 * This struct never grows.
 */
typedef struct ap_memory {
    /**
     * First byte.
     */
    void *pointer;
    /**
     * Byte count.
     */
    size_t bytes;
} ap_memory;

/**
 * An operand of a step, and the operand's bytes in memory.
 *
 * This struct never grows.
 */
typedef struct ap_operand {
    /**
     * First byte, or null.
     */
    void *pointer;
    /**
     * Byte count.
     */
    size_t bytes;
    /**
     * Value number, or `AP_NONE`.
     */
    uint32_t value;
    /**
     * How the step uses the operand.
     */
    enum ap_access access;
} ap_operand;

/**
 * Memory for one step. The arrays belong to the arena.
 */
typedef struct ap_step_memory {
    /**
     * `sizeof(ap_step_memory)`.
     */
    uint32_t size;
    /**
     * Input count.
     */
    uint32_t input_count;
    /**
     * Output count.
     */
    uint32_t output_count;
    /**
     * Workspace count.
     */
    uint32_t workspace_count;
    /**
     * Inputs, by position.
     */
    const struct ap_operand *inputs;
    /**
     * Outputs, by position.
     */
    const struct ap_operand *outputs;
    /**
     * Scratch memory of the nodes, in order. The content is lost after the step.
     */
    const struct ap_memory *workspaces;
} ap_step_memory;

/**
 * A step that must wait for another step.
 *
 * This struct never grows.
 */
typedef struct ap_hazard {
    /**
     * The waiting step's index.
     */
    uint32_t after;
    /**
     * The required earlier step's index.
     */
    uint32_t before;
    /**
     * The reason.
     */
    enum ap_hazard_kind kind;
} ap_hazard;

/**
 * A model. Strings and arrays belong to the model.
 */
typedef struct ap_model_info {
    /**
     * `sizeof(ap_model_info)`.
     */
    uint32_t size;
    /**
     * Shape count.
     */
    uint32_t shape_count;
    /**
     * Model name.
     */
    const char *name;
    /**
     * Variable dimension names.
     */
    const char *const *dims;
    /**
     * Arena bytes that suffice for every shape.
     */
    uint64_t arena_bytes;
    /**
     * Dimension count.
     */
    uint32_t dim_count;
    /**
     * 0.
     */
    uint32_t flags;
} ap_model_info;

/**
 * A model's shape. Strings and arrays belong to the model.
 */
typedef struct ap_model_shape_info {
    /**
     * `sizeof(ap_model_shape_info)`.
     */
    uint32_t size;
    /**
     * Dimension count.
     */
    uint32_t dim_count;
    /**
     * Size by dimension, in the order of `ap_model_info::dims`.
     */
    const uint64_t *sizes;
    /**
     * Graph digest, in hexadecimal.
     */
    const char *digest;
    /**
     * Total arena bytes.
     */
    uint64_t arena_bytes;
} ap_model_shape_info;

/**
 * A dimension in a request, with a size.
 *
 * This struct never grows.
 */
typedef struct ap_dim {
    /**
     * Dimension name.
     */
    const char *name;
    /**
     * Dimension size.
     */
    uint64_t size;
} ap_dim;

/**
 * A memory that buffers are placed in.
 */
typedef struct ap_space {
    /**
     * `sizeof(ap_space)`.
     */
    uint32_t size;
    /**
     * 0.
     */
    uint32_t flags;
    /**
     * Bytes that the memory holds; 0 is unlimited.
     */
    uint64_t capacity;
    /**
     * Power of two that divides every offset; 0 counts as 1.
     */
    uint64_t alignment;
} ap_space;

/**
 * Steps that need only some bytes of a buffer, or none.
 *
 * This struct never grows.
 */
typedef struct ap_gap {
    /**
     * First step in the gap.
     */
    uint64_t lower;
    /**
     * Step after the gap's last step.
     */
    uint64_t upper;
    /**
     * First byte that stays needed.
     */
    uint64_t bytes_lower;
    /**
     * Byte after the last that stays needed; equal to `bytes_lower` if none do.
     */
    uint64_t bytes_upper;
} ap_gap;

/**
 * A buffer with rare properties.
 */
typedef struct ap_buffer {
    /**
     * `sizeof(ap_buffer)`.
     */
    uint32_t size;
    /**
     * `AP_BUFFER_FIXED` or `AP_BUFFER_HINTED`, or 0.
     */
    uint32_t flags;
    /**
     * First step in which the buffer is needed.
     */
    uint64_t lower;
    /**
     * Step after the last in which the buffer is needed.
     */
    uint64_t upper;
    /**
     * Buffer bytes.
     */
    uint64_t bytes;
    /**
     * Number that divides the offset, which need not be a power of two; 0 counts as 1.
     */
    uint64_t alignment;
    /**
     * With `AP_BUFFER_FIXED` the offset that the buffer must have; with `AP_BUFFER_HINTED` the
     * offset that the search tries first.
     */
    uint64_t offset;
    /**
     * Space number.
     */
    uint32_t space;
    /**
     * Gap count.
     */
    uint32_t gap_count;
    /**
     * Gaps in the live range, in any order; gaps may overlap. Read during the call only.
     */
    const struct ap_gap *gaps;
} ap_buffer;

/**
 * Search progress.
 */
typedef struct ap_progress {
    /**
     * `sizeof(ap_progress)` in the library; fields past this size do not exist.
     */
    uint32_t size;
    /**
     * Space that is being packed.
     */
    uint32_t space;
    /**
     * Name of the method that is at work, for people. Valid during the call.
     */
    const char *stage;
    /**
     * Bytes of the best result so far; before packing, the live bytes at the highest step.
     */
    uint64_t peak;
    /**
     * Bytes that no result can go below.
     */
    uint64_t lower_bound;
    /**
     * Search nodes so far.
     */
    uint64_t nodes;
} ap_progress;

/**
 * Receives search progress; the struct is valid during the call. A result other than 0 ends the
 * search, which then returns the best result so far.
 *
 * The function must return, so the function throws no exception, and must not use the search's
 * handles.
 */
typedef int32_t (*ap_progress_function)(void *context, const struct ap_progress *progress);

/**
 * Search limits. All zeros, except `size`, are the defaults.
 *
 * Without a time limit the result depends on the problem and the options alone, and equals the
 * result of `arenaplan pack` with the same options.
 */
typedef struct ap_options {
    /**
     * `sizeof(ap_options)`.
     */
    uint32_t size;
    /**
     * `AP_OPTIONS_COMPACT`, or 0.
     */
    uint32_t flags;
    /**
     * Milliseconds after which the best packing so far is returned; 0 is no limit.
     */
    uint64_t time_limit_ms;
    /**
     * Search nodes after which the best packing so far is returned; 0 is no limit.
     */
    uint64_t node_limit;
    /**
     * Bytes of the only space; 0 leaves the space as described by `ap_problem_set_space`.
     */
    uint64_t capacity;
    /**
     * Seed for every random choice.
     */
    uint64_t seed;
    /**
     * Called now and then, and whenever a better packing is found; or null.
     */
    ap_progress_function progress;
    /**
     * First argument to `progress`.
     */
    void *context;
    /**
     * Ends the search when requested; may be null. Read until the search ends.
     */
    const struct ap_cancel *cancel;
} ap_options;

/**
 * Result of a packing in one space.
 */
typedef struct ap_space_packing {
    /**
     * `sizeof(ap_space_packing)`.
     */
    uint32_t size;
    /**
     * The peak's proven status.
     */
    enum ap_status status;
    /**
     * Bytes that the memory must have.
     */
    uint64_t peak;
    /**
     * Bytes that the memory must have under any offsets: proven.
     */
    uint64_t lower_bound;
} ap_space_packing;

/**
 * A way to run a step.
 */
typedef struct ap_way {
    /**
     * Scratch bytes.
     */
    uint64_t bytes;
    /**
     * Nanoseconds per run.
     */
    uint64_t nanoseconds;
} ap_way;

/**
 * States the cost of running `count` nodes, by position in the graph, as one step in this order.
 * The function writes the ways to run the step, ascending bytes, to `ways`, an array with
 * `AP_MOST_WAYS` elements, and returns the number of ways; 0 if the program has no kernel for the
 * step.
 *
 * Equal nodes must have equal costs. The function must return, so the function throws no
 * exception, and must not use the search's handles. Outputs that overlap an input at a distance,
 * and steps that run strip by strip, have no costs in C: the plan has no such outputs and steps.
 */
typedef size_t (*ap_cost_function)(void *context,
                                   const uint32_t *nodes,
                                   size_t count,
                                   struct ap_way *ways);

/**
 * Plan options. All zeros, except `size`, are the defaults.
 */
typedef struct ap_plan_options {
    /**
     * `sizeof(ap_plan_options)`.
     */
    uint32_t size;
    /**
     * `AP_PLAN_PARALLEL_SAFE` and the flags behind.
     */
    uint32_t flags;
    /**
     * Target name, such as "nodes" or "c"; null stands for "nodes", one node per step.
     */
    const char *target;
    /**
     * Power of two that divides every offset; 0 stands for the target's alignment.
     */
    uint64_t alignment;
    /**
     * Arena bytes; 0 is no limit.
     */
    uint64_t capacity;
    /**
     * Milliseconds after which the best plan so far is returned; 0 is no limit.
     */
    uint64_t time_limit_ms;
    /**
     * Workers that run steps at the same time; 0 counts as 1.
     */
    uint32_t workers;
    /**
     * `AP_EFFORT_FAST` or `AP_EFFORT_MAX`, or 0.
     */
    uint32_t effort;
    /**
     * Called now and then; or null.
     */
    ap_progress_function progress;
    /**
     * First argument to `progress` and `costs`.
     */
    void *context;
    /**
     * Ends the search when requested; may be null. Read until the search ends.
     */
    const struct ap_cancel *cancel;
    /**
     * States the scratch memory and the time of steps, which the plan then has and weighs, for a
     * target whose kernels have scratch memory, such as "numpy"; or null.
     */
    ap_cost_function costs;
    /**
     * With `costs`: longest time, in thousandths of the fastest plan's time; 0 is no limit.
     */
    uint64_t max_slowdown;
} ap_plan_options;

/**
 * Plan sizes. Strings belong to the plan.
 */
typedef struct ap_plan_info {
    /**
     * `sizeof(ap_plan_info)`.
     */
    uint32_t size;
    /**
     * The arena bytes' proven status.
     */
    enum ap_status status;
    /**
     * Model name.
     */
    const char *model;
    /**
     * Planned graph digest, in hexadecimal.
     */
    const char *digest;
    /**
     * Target name: the program that the plan is for.
     */
    const char *target;
    /**
     * Total arena bytes, without the caller's buffers.
     */
    uint64_t arena_bytes;
    /**
     * Bytes that no plan with this order and this sharing can go below: proven.
     */
    uint64_t lower_bound;
    /**
     * Number of spaces: arenas, then the caller's buffers for single values.
     */
    uint32_t space_count;
    /**
     * Space count, arenas only.
     */
    uint32_t arena_count;
    /**
     * Number of values in the graph, values without a place included.
     */
    uint32_t value_count;
    /**
     * Step count.
     */
    uint32_t step_count;
} ap_plan_info;

/**
 * A plan's space. Strings belong to the plan.
 */
typedef struct ap_plan_space_info {
    /**
     * `sizeof(ap_plan_space_info)`.
     */
    uint32_t size;
    /**
     * The value that the caller brings this memory for, or `AP_NONE` for an arena.
     */
    uint32_t caller_value;
    /**
     * Space name.
     */
    const char *name;
    /**
     * Bytes that the memory must have.
     */
    uint64_t bytes;
    /**
     * Power of two that must divide the space's first address.
     */
    uint64_t alignment;
} ap_plan_space_info;

/**
 * A plan's value. Strings belong to the plan.
 */
typedef struct ap_plan_value_info {
    /**
     * `sizeof(ap_plan_value_info)`.
     */
    uint32_t size;
    /**
     * Space number.
     */
    uint32_t space;
    /**
     * Value name.
     */
    const char *name;
    /**
     * First byte in the space.
     */
    uint64_t offset;
    /**
     * Value bytes.
     */
    uint64_t bytes;
    /**
     * First step in which the bytes are needed.
     */
    uint32_t lower;
    /**
     * Step after the last in which the bytes are needed.
     */
    uint32_t upper;
} ap_plan_value_info;

/**
 * Two operands of a step that share bytes.
 *
 * This struct never grows.
 */
typedef struct ap_share {
    /**
     * Position among the inputs.
     */
    uint32_t input;
    /**
     * Position among the outputs.
     */
    uint32_t output;
    /**
     * The rule that permits sharing.
     */
    enum ap_share_rule rule;
} ap_share;

/**
 * A plan's step. Strings and arrays belong to the plan.
 */
typedef struct ap_plan_step_info {
    /**
     * `sizeof(ap_plan_step_info)`.
     */
    uint32_t size;
    /**
     * Node count in the step.
     */
    uint32_t node_count;
    /**
     * The last node's name.
     */
    const char *name;
    /**
     * Node numbers in the graph, in order.
     */
    const uint32_t *nodes;
    /**
     * Operands that share bytes.
     */
    const struct ap_share *shares;
    /**
     * Share count.
     */
    uint32_t share_count;
    /**
     * Input count.
     */
    uint32_t input_count;
    /**
     * Output count.
     */
    uint32_t output_count;
    /**
     * Workspace count.
     */
    uint32_t workspace_count;
    /**
     * Operator of the last node; null if the plan was read without a graph.
     */
    const char *op;
} ap_plan_step_info;

/**
 * Returns `bytes` bytes at a multiple of `alignment`, or null. Called on any thread, one call at a
 * time per pool.
 */
typedef void *(*ap_allocate_function)(void *context, uint64_t bytes, uint64_t alignment);

/**
 * Frees a block from the other function, with the same `bytes`. Called on any thread.
 */
typedef void (*ap_deallocate_function)(void *context, void *memory, uint64_t bytes);

/**
 * Pool options. All zeros, except `size`, are the defaults.
 */
typedef struct ap_pool_options {
    /**
     * `sizeof(ap_pool_options)`.
     */
    uint32_t size;
    /**
     * `AP_POOL_CLEAR` and `AP_POOL_KEEP_NOTHING`, or 0.
     */
    uint32_t flags;
    /**
     * Bytes that the blocks of the pool, leased and free, may have together; 0 is no limit.
     */
    uint64_t cap;
    /**
     * Bytes of free blocks that are kept for later leases; 0 keeps all.
     */
    uint64_t keep;
    /**
     * Source of blocks; null stands for the library's allocator. Both functions, or none.
     */
    ap_allocate_function allocate;
    /**
     * Frees a block from `allocate`.
     */
    ap_deallocate_function deallocate;
    /**
     * First argument to both functions.
     */
    void *context;
} ap_pool_options;

/**
 * Pool statistics.
 */
typedef struct ap_pool_numbers {
    /**
     * `sizeof(ap_pool_numbers)`.
     */
    uint32_t size;
    /**
     * Requests that wait now.
     */
    uint32_t waiting;
    /**
     * Bytes in the blocks that are leased now.
     */
    uint64_t leased_bytes;
    /**
     * Bytes of the blocks that are free now, and kept.
     */
    uint64_t free_bytes;
    /**
     * Most bytes, leased and free, at any time.
     */
    uint64_t peak_bytes;
    /**
     * Leases that were given.
     */
    uint64_t leases;
    /**
     * Blocks that were leased again.
     */
    uint64_t reused;
    /**
     * Blocks that were allocated.
     */
    uint64_t allocated;
    /**
     * Free blocks that were freed.
     */
    uint64_t evicted;
    /**
     * Requests that had to wait.
     */
    uint64_t waits;
    /**
     * Requests that were refused because their time was over.
     */
    uint64_t refused;
} ap_pool_numbers;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the library version: `major << 16 | minor << 8 | patch`.
 *
 * `AP_VERSION_MAJOR` and its neighbors are the header version.
 */
uint32_t ap_version(void);

/**
 * Returns the reason for the last failed call on this thread: text for people, in UTF-8, at most
 * 1023 bytes; an empty string if no call failed.
 *
 * The string is valid until the next failed call on this thread. A successful call leaves the
 * string unchanged.
 */
const char *ap_last_error(void);

/**
 * Uses `bytes` bytes at `memory` as the memory of a plan with one space.
 *
 * Fails with `AP_CODE_MEMORY_TOO_SMALL` or `AP_CODE_MEMORY_MISALIGNED` if the memory is not as
 * `ap_plan_space` describes. The memory stays the caller's: the memory must outlive all use of the
 * addresses, and the call neither reads nor writes the content. On failure `*arena` is null.
 */
enum ap_code ap_arena_bind(const struct ap_plan *plan,
                           void *memory,
                           size_t bytes,
                           struct ap_arena **arena);

/**
 * Uses `count` memories for all spaces of a plan, in order. Otherwise as `ap_arena_bind`.
 */
enum ap_code ap_arena_bind_spaces(const struct ap_plan *plan,
                                  const struct ap_memory *memories,
                                  size_t count,
                                  struct ap_arena **arena);

/**
 * Allocates zeroed memory for all spaces of a plan. `ap_arena_free` frees the memory.
 *
 * Fails with `AP_CODE_OUT_OF_MEMORY`. On failure `*arena` is null.
 */
enum ap_code ap_arena_allocate(const struct ap_plan *plan, struct ap_arena **arena);

/**
 * Frees an arena, and memory from `ap_arena_allocate`; gives leased memory back to its pool. Does
 * nothing if the arena is null.
 */
void ap_arena_free(struct ap_arena *arena);

/**
 * Returns a value's bytes, by the value's number in the graph.
 *
 * Fails with `AP_CODE_NOT_FOUND` if the value has no place.
 */
enum ap_code ap_arena_value(const struct ap_arena *arena, uint32_t value, struct ap_memory *memory);

/**
 * Returns the memory of step `index`: inputs, outputs and workspaces.
 *
 * All addresses were settled when the arena was made; this call allocates nothing. Operands share
 * bytes only as the shares in `ap_plan_step` say.
 */
enum ap_code ap_arena_step(const struct ap_arena *arena,
                           uint32_t index,
                           struct ap_step_memory *step);

/**
 * Finds the steps that each step must wait for, if several threads run steps.
 *
 * A program that starts each step after these steps have ended is right, however long steps take.
 * `graph` is the content of a graph file, `bytes` bytes, against which the plan is checked;
 * `graph` may be null if the plan is from `ap_plan_make` or `ap_model_plan`. On failure `*hazards`
 * is null.
 */
enum ap_code ap_hazards_make(const struct ap_plan *plan,
                             const char *graph,
                             size_t bytes,
                             struct ap_hazards **hazards);

/**
 * Frees hazards; does nothing if `hazards` is null.
 */
void ap_hazards_free(struct ap_hazards *hazards);

/**
 * Returns the number of all edges; 0 if `hazards` is null.
 */
size_t ap_hazards_count(const struct ap_hazards *hazards);

/**
 * Returns all edges, ascending by later step, then by earlier step; null if `hazards` is null.
 *
 * The array has `ap_hazards_count` elements and belongs to the hazards.
 */
const struct ap_hazard *ap_hazards_edges(const struct ap_hazards *hazards);

/**
 * Returns the edges to step `step`: an array with `*count` elements, one for each earlier step
 * that must end before. The array belongs to the hazards.
 */
enum ap_code ap_hazards_of(const struct ap_hazards *hazards,
                           uint32_t step,
                           const struct ap_hazard **edges,
                           uint32_t *count);

/**
 * Reads a model file, as written by `arenaplan plan --bind -o`, with at most `max_bytes` bytes,
 * and checks each plan against its graph; 0 stands for 1 GiB, which is the limit in any case.
 *
 * On failure `*model` is null. `path` is in UTF-8.
 */
enum ap_code ap_model_load(const char *path, uint64_t max_bytes, struct ap_model **model);

/**
 * Reads a model from the `bytes` bytes in `text`. Otherwise as `ap_model_load`.
 */
enum ap_code ap_model_parse(const char *text, size_t bytes, struct ap_model **model);

/**
 * Frees a model; does nothing if `model` is null. Plans from the model stay valid.
 */
void ap_model_free(struct ap_model *model);

/**
 * Describes a model.
 */
enum ap_code ap_model_describe(const struct ap_model *model, struct ap_model_info *info);

/**
 * Describes shape `index` of a model: sizes, and needed bytes. Takes no memory.
 */
enum ap_code ap_model_shape(const struct ap_model *model,
                            uint32_t index,
                            struct ap_model_shape_info *shape);

/**
 * Finds the shape for `count` dimensions with sizes; `flags` is 0 or `AP_FIND_PADDED`.
 *
 * A dimension with one size in all shapes may be left out. Fails with `AP_CODE_NOT_FOUND` if no
 * shape serves; the text names the nearest shape.
 */
enum ap_code ap_model_find(const struct ap_model *model,
                           const struct ap_dim *dims,
                           size_t count,
                           uint32_t flags,
                           uint32_t *shape);

/**
 * Returns the plan for shape `index`, whose steps have operators. On failure `*plan` is null. A
 * program makes each plan once and keeps the plan: the call copies the plan.
 */
enum ap_code ap_model_plan(const struct ap_model *model, uint32_t index, struct ap_plan **plan);

/**
 * Returns a problem without buffers, for the caller to free with `ap_problem_free`.
 *
 * Space 0 is unlimited until `ap_problem_set_space` describes the space.
 */
struct ap_problem *ap_problem_new(void);

/**
 * Frees a problem; does nothing if `problem` is null.
 */
void ap_problem_free(struct ap_problem *problem);

/**
 * Describes space `index`: an already described space, or the next space.
 */
enum ap_code ap_problem_set_space(struct ap_problem *problem,
                                  uint32_t index,
                                  const struct ap_space *space);

/**
 * Adds a buffer with `bytes` bytes to space 0, needed in the steps from `lower` up to, and
 * without, `upper`, at an offset that is a multiple of `alignment`; 0 counts as 1.
 *
 * The first buffer has number 0, the next number 1. Steps may be 64-bit time stamps; a call that
 * fails adds nothing.
 */
enum ap_code ap_problem_add(struct ap_problem *problem,
                            uint64_t lower,
                            uint64_t upper,
                            uint64_t bytes,
                            uint64_t alignment);

/**
 * Adds a buffer that has a space, gaps, or an offset that is fixed or tried first.
 *
 * The gaps are copied.
 */
enum ap_code ap_problem_add_buffer(struct ap_problem *problem, const struct ap_buffer *buffer);

/**
 * Keeps a buffer inside the space's bytes from `lower` up to, and without, `upper`.
 */
enum ap_code ap_problem_set_range(struct ap_problem *problem,
                                  uint64_t buffer,
                                  uint64_t lower,
                                  uint64_t upper);

/**
 * Puts a buffer into a group: all buffers of a group have the same offset.
 */
enum ap_code ap_problem_set_group(struct ap_problem *problem, uint64_t buffer, uint32_t group);

/**
 * Permits two buffers to share bytes although both are needed: a result over the operand that the
 * result replaces.
 */
enum ap_code ap_problem_may_overlap(struct ap_problem *problem, uint64_t buffer, uint64_t other);

/**
 * Keeps two buffers in one space apart although they are never needed in the same step.
 */
enum ap_code ap_problem_keep_apart(struct ap_problem *problem, uint64_t buffer, uint64_t other);

/**
 * Puts two buffers into different spaces, such as banks that are read in the same cycle.
 *
 * `ap_problem_set_spaces` says between which spaces there is a choice. `ap_solve` fails if no spaces keep all
 * pairs separate, and the message has the numbers of buffers.
 */
enum ap_code ap_problem_keep_separate(struct ap_problem *problem,
                                      uint64_t buffer,
                                      uint64_t other);

/**
 * Permits a buffer to be in any of `count` spaces, instead of the space that the buffer was added
 * to: `ap_solve` chooses, and `ap_packing_space_of` returns the choice.
 *
 * The array is copied.
 */
enum ap_code ap_problem_set_spaces(struct ap_problem *problem,
                                   uint64_t buffer,
                                   const uint32_t *spaces,
                                   size_t count);

/**
 * Keeps a space's bytes from `lower` up to, and without, `upper` free of buffers.
 */
enum ap_code ap_problem_reserve(struct ap_problem *problem,
                                uint32_t space,
                                uint64_t lower,
                                uint64_t upper);

/**
 * Returns the buffer count; 0 if `problem` is null.
 */
size_t ap_problem_count(const struct ap_problem *problem);

/**
 * Searches offsets for all buffers, such that buffers in one space that are needed in the same
 * step share no byte, and the highest byte is as low as possible.
 *
 * `options` may be null: the search then ends when the packing is proven optimal, or after an
 * effort that grows with the problem. A packing past the capacity is a result, too, with
 * `AP_STATUS_UNKNOWN` or `AP_STATUS_INFEASIBLE`. On failure `*packing` is null. The problem does
 * not change, and any number of threads may solve the problem at the same time.
 */
enum ap_code ap_solve(const struct ap_problem *problem,
                      const struct ap_options *options,
                      struct ap_packing **packing);

/**
 * Packs again after the problem has changed, such that few buffers leave their old offsets.
 *
 * `old` has one offset per buffer, or `AP_NO_OFFSET` for a new buffer. The peak of each space is
 * at most the peak by `ap_solve`, or at most the capacity if the capacity can be met.
 * `AP_OPTIONS_COMPACT` is refused.
 */
enum ap_code ap_repack(const struct ap_problem *problem,
                       const uint64_t *old,
                       size_t old_count,
                       const struct ap_options *options,
                       struct ap_packing **packing);

/**
 * Finds buffers that together do not fit a space, each needed for that proof.
 *
 * The subset is empty if there is no proof that the space is too small. On failure `*subset` is
 * null.
 */
enum ap_code ap_infeasible_subset(const struct ap_problem *problem,
                                  uint32_t space,
                                  const struct ap_options *options,
                                  struct ap_subset **subset);

/**
 * Frees a subset; does nothing if `subset` is null.
 */
void ap_subset_free(struct ap_subset *subset);

/**
 * Returns how many buffers a subset has; 0 if `subset` is null.
 */
size_t ap_subset_count(const struct ap_subset *subset);

/**
 * Returns the numbers of the buffers in a subset, ascending; null if `subset` is null.
 *
 * The array has `ap_subset_count` elements and belongs to the subset.
 */
const uint64_t *ap_subset_buffers(const struct ap_subset *subset);

/**
 * Returns the bytes that all spaces need if only those buffers move that must; for a packing that
 * is not from `ap_repack`, the packing's peak. 0 if `packing` is null.
 */
uint64_t ap_packing_peak_of_staying(const struct ap_packing *packing);

/**
 * Frees a packing; does nothing if `packing` is null.
 */
void ap_packing_free(struct ap_packing *packing);

/**
 * Returns the proven status of the packing: the weakest status of all spaces. `AP_STATUS_UNKNOWN`
 * if `packing` is null.
 */
enum ap_status ap_packing_status(const struct ap_packing *packing);

/**
 * Returns the bytes that the memories of all spaces need; 0 if `packing` is null.
 */
uint64_t ap_packing_peak(const struct ap_packing *packing);

/**
 * Returns the visited search nodes, the unit of the node limit; 0 if `packing` is null.
 */
uint64_t ap_packing_nodes(const struct ap_packing *packing);

/**
 * Returns the bytes that all spaces need under any offsets: proven. 0 if `packing` is null.
 */
uint64_t ap_packing_lower_bound(const struct ap_packing *packing);

/**
 * Returns the offsets of all buffers, in bytes, by number; null if `packing` is null.
 *
 * The array has `ap_packing_count` elements and belongs to the packing.
 */
const uint64_t *ap_packing_offsets(const struct ap_packing *packing);

/**
 * Returns the number of a buffer's space; `UINT32_MAX` if `packing` is null or the buffer does not
 * exist.
 */
uint32_t ap_packing_space_of(const struct ap_packing *packing, uint64_t buffer);

/**
 * Returns the offset count; 0 if `packing` is null.
 */
size_t ap_packing_count(const struct ap_packing *packing);

/**
 * Describes the packing in one space.
 */
enum ap_code ap_packing_space(const struct ap_packing *packing,
                              uint32_t index,
                              struct ap_space_packing *space);

/**
 * Verifies a packing against its problem, with code that the search does not use.
 *
 * Fails with `AP_CODE_CHECK_FAILED`, which would be a defect of this library.
 */
enum ap_code ap_packing_check(const struct ap_packing *packing);

/**
 * Plans a graph: `graph` is the content of a graph file, `bytes` bytes, as written by
 * `arenaplan export --to graph`.
 *
 * `options` may be null. A plan past the capacity is a result, too: see `ap_plan_info::status`.
 * The plan keeps a copy of the graph: steps have operators, and `ap_hazards_make` needs no graph.
 * On failure `*plan` is null.
 */
enum ap_code ap_plan_make(const char *graph,
                          size_t bytes,
                          const struct ap_plan_options *options,
                          struct ap_plan **plan);

/**
 * Reads a plan file, as written by `arenaplan plan -o`, with at most `max_bytes` bytes; 0 stands
 * for 1 GiB, which is the limit in any case.
 *
 * A plan whose bytes are outside its memory is refused. `arenaplan check` verifies whether the
 * plan is right for a graph: a plan from an untrusted source may let values share bytes that must
 * not. On failure `*plan` is null.
 *
 * `path` is in UTF-8.
 */
enum ap_code ap_plan_load(const char *path, uint64_t max_bytes, struct ap_plan **plan);

/**
 * Reads a plan from the `bytes` bytes in `text`, the content of a plan file. Otherwise as
 * `ap_plan_load`.
 */
enum ap_code ap_plan_parse(const char *text, size_t bytes, struct ap_plan **plan);

/**
 * Frees a plan; does nothing if `plan` is null. The plan's arenas stay valid; strings and arrays
 * of the plan do not.
 */
void ap_plan_free(struct ap_plan *plan);

/**
 * Describes a plan.
 */
enum ap_code ap_plan_describe(const struct ap_plan *plan, struct ap_plan_info *info);

/**
 * Describes space `index` of a plan.
 */
enum ap_code ap_plan_space(const struct ap_plan *plan,
                           uint32_t index,
                           struct ap_plan_space_info *space);

/**
 * Describes the place of a value, by the value's number in the graph.
 *
 * Fails with `AP_CODE_NOT_FOUND` if the value has no place: constants have none.
 */
enum ap_code ap_plan_value(const struct ap_plan *plan,
                           uint32_t value,
                           struct ap_plan_value_info *place);

/**
 * Finds the number of a value by name, in UTF-8; in constant time.
 *
 * Fails with `AP_CODE_NOT_FOUND` if no value with a place has that name.
 */
enum ap_code ap_plan_find(const struct ap_plan *plan, const char *name, uint32_t *value);

/**
 * Describes step `index` of a plan.
 */
enum ap_code ap_plan_step(const struct ap_plan *plan,
                          uint32_t index,
                          struct ap_plan_step_info *step);

/**
 * Verifies a plan against its graph: `graph` is the content of a graph file, `bytes` bytes, as
 * written by `arenaplan export --to graph`.
 *
 * Fails with `AP_CODE_CHECK_FAILED` if values that are needed at the same time share bytes, or the
 * plan belongs to another graph.
 */
enum ap_code ap_plan_check(const struct ap_plan *plan, const char *graph, size_t bytes);

/**
 * Makes a pool without blocks.
 *
 * `options` may be null. Blocks of `ap_pool_options::allocate` can be any memory that the processor
 * reads and writes: pinned memory for copies to a device, for example. On failure `*pool` is null.
 */
enum ap_code ap_pool_make(const struct ap_pool_options *options, struct ap_pool **pool);

/**
 * Frees a pool; free blocks go back to their source. Does nothing if the pool is null.
 *
 * Leased arenas stay valid; the source is used until the last arena is freed.
 */
void ap_pool_free(struct ap_pool *pool);

/**
 * Leases the memory for a plan: `ap_arena_free` gives the memory back. The content is that of an
 * earlier lease, unless the pool has `AP_POOL_CLEAR`.
 *
 * The thread waits for at most `timeout_ms` milliseconds, `AP_FOREVER` for an unlimited wait, and
 * then fails with `AP_CODE_POOL_BUSY`. Requests are served in order of arrival. Fails with
 * `AP_CODE_LEASE_TOO_LARGE` at once if the plan needs more bytes than the cap. A lease for a plan
 * that had the same memory before finds settled addresses. On failure `*arena` is null.
 */
enum ap_code ap_pool_lease(const struct ap_pool *pool,
                           const struct ap_plan *plan,
                           uint64_t timeout_ms,
                           struct ap_arena **arena);

/**
 * Frees free blocks, the longest free first, until at most `keep` bytes are left; returns the
 * freed bytes. 0 if `pool` is null.
 */
uint64_t ap_pool_trim(const struct ap_pool *pool, uint64_t keep);

/**
 * Describes a pool at this moment.
 */
enum ap_code ap_pool_describe(const struct ap_pool *pool, struct ap_pool_numbers *numbers);

/**
 * Returns a request to end searches, which has not been made yet, for the caller to free with
 * `ap_cancel_free`.
 */
struct ap_cancel *ap_cancel_new(void);

/**
 * Ends all searches whose options name this request, and all later searches: each returns the best
 * result so far. Any thread may make this call at any time. Does nothing if `cancel` is null.
 */
void ap_cancel_request(const struct ap_cancel *cancel);

/**
 * Frees a request that no search uses; does nothing if `cancel` is null.
 */
void ap_cancel_free(struct ap_cancel *cancel);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ARENAPLAN_H */
