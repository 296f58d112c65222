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
 * Version of the header. It is compatible with libraries of the same major version (of the same
 * minor version while the major one is 0) that are not older.
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
 * The number of a value or a node that is none.
 */
#define AP_NONE UINT32_MAX

/**
 * Flag of a buffer: `offset` is the offset that the buffer must have.
 */
#define AP_BUFFER_FIXED 1

/**
 * Flag of a buffer: `offset` is tried first.
 */
#define AP_BUFFER_HINTED 2

/**
 * Result of a call. The numbers are part of the ABI.
 */
typedef enum ap_code {
    /**
     * The call did what it says.
     */
    AP_CODE_OK = 0,
    /**
     * An argument is null, out of range, or contradicts another one.
     */
    AP_CODE_INVALID_ARGUMENT = 1,
    /**
     * No value has that name, or the value has no place in the plan.
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
     * The file, or a struct of the caller, is of a version that this library does not know.
     */
    AP_CODE_UNSUPPORTED_VERSION = 5,
    /**
     * A plan or packing is not a valid answer to what it is compared with.
     */
    AP_CODE_CHECK_FAILED = 6,
    /**
     * Memory of the caller has fewer bytes than the plan needs.
     */
    AP_CODE_MEMORY_TOO_SMALL = 7,
    /**
     * Memory of the caller begins at an address that is not aligned as the plan needs it.
     */
    AP_CODE_MEMORY_MISALIGNED = 8,
    /**
     * An allocation failed.
     */
    AP_CODE_OUT_OF_MEMORY = 9,
    /**
     * A defect of this library. The handles of the call may be freed, and nothing else.
     */
    AP_CODE_INTERNAL = 10,
} ap_code;

/**
 * What is proven about a size.
 */
typedef enum ap_status {
    /**
     * It is the smallest possible.
     */
    AP_STATUS_OPTIMAL = 0,
    /**
     * It fits the capacity, and may not be the smallest possible.
     */
    AP_STATUS_FEASIBLE = 1,
    /**
     * It exceeds the capacity, and no smaller one fits: proven.
     */
    AP_STATUS_INFEASIBLE = 2,
    /**
     * It exceeds the capacity; a smaller one may exist.
     */
    AP_STATUS_UNKNOWN = 3,
} ap_status;

/**
 * Why an output and an input of a step share bytes.
 */
typedef enum ap_share_rule {
    /**
     * The smaller shows bytes of the larger unchanged: the step need not write them.
     */
    AP_SHARE_RULE_VIEW = 0,
    /**
     * The output takes over the bytes of an input that dies: the step works in place.
     */
    AP_SHARE_RULE_IN_PLACE = 1,
    /**
     * The output begins before an input that dies, and overlaps it: the step makes the output in
     * order, and reads each byte for the last time before it writes there.
     */
    AP_SHARE_RULE_OVERLAP = 2,
} ap_share_rule;

/**
 * How a step uses an operand.
 */
typedef enum ap_access {
    /**
     * The operand is left out, or its bytes are never read. `pointer` is null.
     */
    AP_ACCESS_ABSENT = 0,
    /**
     * The operand has no place in the plan: a constant, which the program has. `pointer` is null.
     */
    AP_ACCESS_EXTERNAL = 1,
    /**
     * The step reads the bytes. If the step mutates the operand as a state, it writes them, too.
     */
    AP_ACCESS_READ = 2,
    /**
     * The step writes the bytes.
     */
    AP_ACCESS_WRITE = 3,
    /**
     * The bytes are those of an input, and already have their final content: not to be written.
     */
    AP_ACCESS_VIEW = 4,
} ap_access;

/**
 * Memory that a plan was bound to, and the address of every operand of every step.
 *
 * An arena never changes after it was made; any number of threads may ask it for addresses. Two
 * runs at the same time need two memories.
 */
typedef struct ap_arena ap_arena;

/**
 * Offsets for the buffers of a problem, and what is proven about them.
 */
typedef struct ap_packing ap_packing;

/**
 * A plan: a place for every value, one memory per space.
 *
 * A plan never changes; any number of threads may use it at the same time.
 */
typedef struct ap_plan ap_plan;

/**
 * Buffers to be placed, and the memories they are placed in.
 *
 * A problem begins with space 0, which is unlimited. Buffers are numbered from 0 on, as they are
 * added.
 */
typedef struct ap_problem ap_problem;

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
 * Steps in which a buffer needs some of its bytes only, or none.
 *
 * This struct never grows.
 */
typedef struct ap_gap {
    /**
     * First step of the gap.
     */
    uint64_t lower;
    /**
     * Step after the last of the gap.
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
     * Bytes of the buffer.
     */
    uint64_t bytes;
    /**
     * Power of two that divides the offset; 0 counts as 1.
     */
    uint64_t alignment;
    /**
     * With `AP_BUFFER_FIXED` the offset that the buffer must have; with `AP_BUFFER_HINTED` the
     * offset that the search tries first.
     */
    uint64_t offset;
    /**
     * Number of the space.
     */
    uint32_t space;
    /**
     * Number of gaps.
     */
    uint32_t gap_count;
    /**
     * Gaps in the live range, in any order; they may overlap. Read during the call only.
     */
    const struct ap_gap *gaps;
} ap_buffer;

/**
 * Limits of a search. All zeros, but for `size`, are the defaults.
 *
 * Without a time limit the result depends on the problem and the options alone, and is that of
 * `arenaplan pack` with the same options.
 */
typedef struct ap_options {
    /**
     * `sizeof(ap_options)`.
     */
    uint32_t size;
    /**
     * Threads of a search with a time limit, at most 1024; 0 counts as 1.
     */
    uint32_t threads;
    /**
     * Milliseconds after which the best packing so far is returned; 0 is no limit.
     */
    uint64_t time_limit_ms;
    /**
     * Search nodes after which the best packing so far is returned; 0 is no limit.
     */
    uint64_t node_limit;
    /**
     * Bytes of the only space; 0 leaves the space as `ap_problem_set_space` described it.
     */
    uint64_t capacity;
    /**
     * Seed of every random choice.
     */
    uint64_t seed;
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
     * What is proven about the peak.
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
 * Sizes of a plan. Strings belong to the plan.
 */
typedef struct ap_plan_info {
    /**
     * `sizeof(ap_plan_info)`.
     */
    uint32_t size;
    /**
     * What is proven about the bytes of all arenas.
     */
    enum ap_status status;
    /**
     * Name of the model.
     */
    const char *model;
    /**
     * Digest of the graph that was planned, in hexadecimal.
     */
    const char *digest;
    /**
     * Name of the target: the program that the plan is for.
     */
    const char *target;
    /**
     * Bytes of all arenas together, without buffers that the caller brings.
     */
    uint64_t arena_bytes;
    /**
     * Bytes that no plan with this order and this sharing can go below: proven.
     */
    uint64_t lower_bound;
    /**
     * Number of spaces: arenas, then buffers that the caller brings for single values.
     */
    uint32_t space_count;
    /**
     * Number of spaces that are arenas.
     */
    uint32_t arena_count;
    /**
     * Number of values of the graph, those without a place among them.
     */
    uint32_t value_count;
    /**
     * Number of steps.
     */
    uint32_t step_count;
} ap_plan_info;

/**
 * One space of a plan. Strings belong to the plan.
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
     * Name of the space.
     */
    const char *name;
    /**
     * Bytes that the memory must have.
     */
    uint64_t bytes;
    /**
     * Power of two that must divide the address of its first byte.
     */
    uint64_t alignment;
} ap_plan_space_info;

/**
 * One value of a plan. Strings belong to the plan.
 */
typedef struct ap_plan_value_info {
    /**
     * `sizeof(ap_plan_value_info)`.
     */
    uint32_t size;
    /**
     * Number of the space.
     */
    uint32_t space;
    /**
     * Name of the value.
     */
    const char *name;
    /**
     * First byte in the space.
     */
    uint64_t offset;
    /**
     * Bytes of the value.
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
     * The rule that permits it.
     */
    enum ap_share_rule rule;
} ap_share;

/**
 * One step of a plan. Strings and arrays belong to the plan.
 */
typedef struct ap_plan_step_info {
    /**
     * `sizeof(ap_plan_step_info)`.
     */
    uint32_t size;
    /**
     * Number of nodes that run as one.
     */
    uint32_t node_count;
    /**
     * Name of the last node.
     */
    const char *name;
    /**
     * Numbers of the nodes in the graph, in order.
     */
    const uint32_t *nodes;
    /**
     * Operands that share bytes.
     */
    const struct ap_share *shares;
    /**
     * Number of shares.
     */
    uint32_t share_count;
    /**
     * Number of inputs.
     */
    uint32_t input_count;
    /**
     * Number of outputs.
     */
    uint32_t output_count;
    /**
     * Number of workspaces.
     */
    uint32_t workspace_count;
} ap_plan_step_info;

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
     * Number of bytes.
     */
    size_t bytes;
} ap_memory;

/**
 * One operand of a step, and its bytes in memory.
 *
 * This struct never grows.
 */
typedef struct ap_operand {
    /**
     * First byte, or null.
     */
    void *pointer;
    /**
     * Number of bytes.
     */
    size_t bytes;
    /**
     * Number of the value, or `AP_NONE`.
     */
    uint32_t value;
    /**
     * How the step uses it.
     */
    enum ap_access access;
} ap_operand;

/**
 * Memory of one step. The arrays belong to the arena.
 */
typedef struct ap_step_memory {
    /**
     * `sizeof(ap_step_memory)`.
     */
    uint32_t size;
    /**
     * Number of inputs.
     */
    uint32_t input_count;
    /**
     * Number of outputs.
     */
    uint32_t output_count;
    /**
     * Number of workspaces.
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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library: `major << 16 | minor << 8 | patch`.
 *
 * `AP_VERSION_MAJOR` and its neighbors are the version of the header.
 */
uint32_t ap_version(void);

/**
 * Returns the reason of the last call that failed on this thread: text for people, in UTF-8, at
 * most 1023 bytes; an empty string if no call failed.
 *
 * The string is valid until the next call that fails on this thread. A successful call leaves it
 * as it is.
 */
const char *ap_last_error(void);

/**
 * Returns a problem without buffers, for the caller to free with `ap_problem_free`.
 *
 * Space 0 is unlimited until `ap_problem_set_space` describes it.
 */
struct ap_problem *ap_problem_new(void);

/**
 * Frees a problem; does nothing if it is null.
 */
void ap_problem_free(struct ap_problem *problem);

/**
 * Describes space `index`: one that was described before, or the next one.
 */
enum ap_code ap_problem_set_space(struct ap_problem *problem,
                                  uint32_t index,
                                  const struct ap_space *space);

/**
 * Adds a buffer of `bytes` bytes to space 0, needed in the steps from `lower` up to, and without,
 * `upper`, at an offset that is a multiple of `alignment`, a power of two; 0 counts as 1.
 *
 * The first buffer has number 0, the next number 1. Steps are at most 4,294,967,295; a call that
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
 * Returns the number of buffers; 0 if `problem` is null.
 */
size_t ap_problem_count(const struct ap_problem *problem);

/**
 * Searches offsets for all buffers, so that buffers of one space that are needed in the same step
 * share no byte, and the highest byte is as low as possible.
 *
 * `options` may be null: the search then ends when the packing is proven optimal, or after an
 * effort that grows with the problem. A packing past the capacity is a result, too, with
 * `AP_STATUS_UNKNOWN` or `AP_STATUS_INFEASIBLE`. On failure `*packing` is null. The problem is
 * not changed, and any number of threads may solve it at the same time.
 */
enum ap_code ap_solve(const struct ap_problem *problem,
                      const struct ap_options *options,
                      struct ap_packing **packing);

/**
 * Frees a packing; does nothing if it is null.
 */
void ap_packing_free(struct ap_packing *packing);

/**
 * Returns what is proven about the packing: the weakest status of all spaces.
 * `AP_STATUS_UNKNOWN` if `packing` is null.
 */
enum ap_status ap_packing_status(const struct ap_packing *packing);

/**
 * Returns the bytes that the memories of all spaces need; 0 if `packing` is null.
 */
uint64_t ap_packing_peak(const struct ap_packing *packing);

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
 * Returns the number of offsets; 0 if `packing` is null.
 */
size_t ap_packing_count(const struct ap_packing *packing);

/**
 * Describes the packing of one space.
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
 * Reads a plan file, as `arenaplan plan -o` writes it, of at most `max_bytes` bytes; 0 stands for
 * 1 GiB, which is the limit in any case.
 *
 * A plan whose bytes are outside of its memory is refused. Whether it is the right plan for a
 * graph is verified by `arenaplan check`: a plan from an untrusted source may let values share
 * bytes that must not. On failure `*plan` is null.
 *
 * `path` is in UTF-8.
 */
enum ap_code ap_plan_load(const char *path, uint64_t max_bytes, struct ap_plan **plan);

/**
 * Reads a plan from the `bytes` bytes of `text`, which is the content of a plan file. Otherwise as
 * `ap_plan_load`.
 */
enum ap_code ap_plan_parse(const char *text, size_t bytes, struct ap_plan **plan);

/**
 * Frees a plan; does nothing if it is null. Arenas of the plan stay valid; strings and arrays of
 * the plan do not.
 */
void ap_plan_free(struct ap_plan *plan);

/**
 * Describes a plan.
 */
enum ap_code ap_plan_describe(const struct ap_plan *plan, struct ap_plan_info *info);

/**
 * Describes the space `index` of a plan.
 */
enum ap_code ap_plan_space(const struct ap_plan *plan,
                           uint32_t index,
                           struct ap_plan_space_info *space);

/**
 * Describes the place of a value, by the number that the value has in its graph.
 *
 * Fails with `AP_CODE_NOT_FOUND` if the value has no place: constants have none.
 */
enum ap_code ap_plan_value(const struct ap_plan *plan,
                           uint32_t value,
                           struct ap_plan_value_info *place);

/**
 * Finds the number of a value by its name, in UTF-8; in constant time.
 *
 * Fails with `AP_CODE_NOT_FOUND` if no value with a place has that name.
 */
enum ap_code ap_plan_find(const struct ap_plan *plan, const char *name, uint32_t *value);

/**
 * Describes the step `index` of a plan.
 */
enum ap_code ap_plan_step(const struct ap_plan *plan,
                          uint32_t index,
                          struct ap_plan_step_info *step);

/**
 * Uses `bytes` bytes at `memory` as the memory of a plan with one space.
 *
 * Fails with `AP_CODE_MEMORY_TOO_SMALL` or `AP_CODE_MEMORY_MISALIGNED` if the memory is not as
 * `ap_plan_space` describes it. The memory stays the caller's: it must outlive all use of the
 * addresses, and its content is neither read nor written here. On failure `*arena` is null.
 */
enum ap_code ap_arena_bind(const struct ap_plan *plan,
                           void *memory,
                           size_t bytes,
                           struct ap_arena **arena);

/**
 * Uses `count` memories as those of all spaces of a plan, in order. Otherwise as `ap_arena_bind`.
 */
enum ap_code ap_arena_bind_spaces(const struct ap_plan *plan,
                                  const struct ap_memory *memories,
                                  size_t count,
                                  struct ap_arena **arena);

/**
 * Allocates zeroed memory for all spaces of a plan, which `ap_arena_free` frees.
 *
 * Fails with `AP_CODE_OUT_OF_MEMORY`. On failure `*arena` is null.
 */
enum ap_code ap_arena_allocate(const struct ap_plan *plan, struct ap_arena **arena);

/**
 * Frees an arena, and its memory if `ap_arena_allocate` made it; does nothing if it is null.
 */
void ap_arena_free(struct ap_arena *arena);

/**
 * Returns the bytes of a value, by the number that the value has in its graph.
 *
 * Fails with `AP_CODE_NOT_FOUND` if the value has no place.
 */
enum ap_code ap_arena_value(const struct ap_arena *arena, uint32_t value, struct ap_memory *memory);

/**
 * Returns the memory of the step `index`: inputs, outputs and workspaces.
 *
 * All addresses were settled when the arena was made; this call allocates nothing. Operands share
 * bytes only as the shares of `ap_plan_step` say.
 */
enum ap_code ap_arena_step(const struct ap_arena *arena,
                           uint32_t index,
                           struct ap_step_memory *step);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ARENAPLAN_H */
