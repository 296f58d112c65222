/*
 * Runs a plan in memory of the program: run PLAN.json
 *
 * The plan is one of `arenaplan plan` for a runner with one kernel per node (--target nodes). The
 * kernels here are stand-ins: each output byte is the sum of the bytes at its position in all
 * inputs, plus the number of the step.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arenaplan.h"

/* Ends the program unless a call succeeded. */
static void check(ap_code code)
{
    if (code != AP_CODE_OK) {
        fprintf(stderr, "run: %s\n", ap_last_error());
        exit(2);
    }
}

/* Computes one output: byte by byte, so that it may be in the bytes of an input. */
static void compute(const ap_step_memory *step, const ap_operand *output, uint32_t number)
{
    unsigned char *to = output->pointer;
    size_t byte;
    uint32_t i;

    for (byte = 0; byte < output->bytes; byte++) {
        unsigned sum = number;
        for (i = 0; i < step->input_count; i++)
            if (step->inputs[i].access == AP_ACCESS_READ && byte < step->inputs[i].bytes)
                sum += ((const unsigned char *)step->inputs[i].pointer)[byte];
        to[byte] = (unsigned char)sum;
    }
}

int main(int argc, char **argv)
{
    ap_plan *plan = NULL;
    ap_arena *arena = NULL;
    ap_plan_info info = {.size = sizeof info};
    ap_plan_space_info space = {.size = sizeof space};
    unsigned char *written;
    void *memory, *start;
    uint32_t value, step, i;

    if (argc != 2) {
        fprintf(stderr, "usage: run PLAN.json\n");
        return 2;
    }
    check(ap_plan_load(argv[1], 0, &plan));
    check(ap_plan_describe(plan, &info));
    if (info.space_count != 1) {
        fprintf(stderr, "run: the plan has %u memories, and this program has one\n",
                (unsigned)info.space_count);
        return 2;
    }

    /* malloc aligns for all standard types; a plan may need more. */
    check(ap_plan_space(plan, 0, &space));
    memory = malloc((size_t)space.bytes + (size_t)space.alignment);
    written = calloc(info.value_count + 1, 1);
    if (memory == NULL || written == NULL)
        return 2;
    start = (char *)memory + (size_t)(space.alignment - (uintptr_t)memory % space.alignment);
    check(ap_arena_bind(plan, start, (size_t)space.bytes, &arena));

    /* Inputs are the values that no step writes: byte k of an input is k. */
    for (step = 0; step < info.step_count; step++) {
        ap_step_memory operands = {.size = sizeof operands};
        check(ap_arena_step(arena, step, &operands));
        for (i = 0; i < operands.output_count; i++)
            if (operands.outputs[i].value != AP_NONE)
                written[operands.outputs[i].value] = 1;
    }
    for (value = 0; value < info.value_count; value++) {
        ap_memory input;
        size_t byte;
        if (written[value] || ap_arena_value(arena, value, &input) != AP_CODE_OK)
            continue;
        for (byte = 0; byte < input.bytes; byte++)
            ((unsigned char *)input.pointer)[byte] = (unsigned char)byte;
    }

    for (step = 0; step < info.step_count; step++) {
        ap_step_memory operands = {.size = sizeof operands};
        check(ap_arena_step(arena, step, &operands));
        for (i = 0; i < operands.output_count; i++)
            if (operands.outputs[i].access == AP_ACCESS_WRITE)
                compute(&operands, &operands.outputs[i], step);
    }

    /* The values that are needed behind the last step are the results. */
    for (value = 0; value < info.value_count; value++) {
        ap_plan_value_info place = {.size = sizeof place};
        ap_memory bytes;
        unsigned sum = 0;
        size_t byte;
        if (ap_plan_value(plan, value, &place) != AP_CODE_OK || place.upper < info.step_count)
            continue;
        check(ap_arena_value(arena, value, &bytes));
        for (byte = 0; byte < bytes.bytes; byte++)
            sum = sum * 31 + ((const unsigned char *)bytes.pointer)[byte];
        printf("%s %u\n", place.name, sum);
    }

    ap_arena_free(arena);
    ap_plan_free(plan);
    free(written);
    free(memory);
    return 0;
}
