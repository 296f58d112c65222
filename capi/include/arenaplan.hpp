// arenaplan for C++11 and later: handles that free themselves, and exceptions for error codes.
//
// Every member function calls the function of arenaplan.h with the same name, which has the
// documentation.

#ifndef ARENAPLAN_HPP
#define ARENAPLAN_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arenaplan.h"

namespace arenaplan {

// A call that failed: the code, and the text of ap_last_error().
class Error : public std::runtime_error {
public:
    explicit Error(ap_code code) : std::runtime_error(ap_last_error()), code_(code) {}
    ap_code code() const noexcept { return code_; }

private:
    ap_code code_;
};

// Throws Error unless `code` is AP_CODE_OK.
inline void check(ap_code code) {
    if (code != AP_CODE_OK) throw Error(code);
}

// Returns a struct of zeros that knows its size.
template <typename Struct>
Struct sized() noexcept {
    Struct zeros = Struct();
    zeros.size = static_cast<std::uint32_t>(sizeof(Struct));
    return zeros;
}

// A handle, and the function that frees it.
template <typename Type, void (*Free)(Type *)>
class Handle {
public:
    explicit Handle(Type *handle) noexcept : handle_(handle) {}
    Type *get() noexcept { return handle_.get(); }
    const Type *get() const noexcept { return handle_.get(); }

private:
    struct Deleter {
        void operator()(Type *handle) const noexcept { Free(handle); }
    };
    std::unique_ptr<Type, Deleter> handle_;
};

// A request to end searches: the field `cancel` of options.
class Cancel : public Handle<ap_cancel, ap_cancel_free> {
public:
    Cancel() : Handle(ap_cancel_new()) {}
    // Any thread may call this at any time.
    void request() const noexcept { ap_cancel_request(get()); }
};

// Offsets for the buffers of a problem.
class Packing : public Handle<ap_packing, ap_packing_free> {
public:
    using Handle::Handle;

    ap_status status() const noexcept { return ap_packing_status(get()); }
    std::uint64_t peak() const noexcept { return ap_packing_peak(get()); }
    std::uint64_t lower_bound() const noexcept { return ap_packing_lower_bound(get()); }
    // Whether every buffer is inside of the capacity.
    bool fits() const noexcept {
        return status() == AP_STATUS_OPTIMAL || status() == AP_STATUS_FEASIBLE;
    }
    std::size_t size() const noexcept { return ap_packing_count(get()); }
    const std::uint64_t *begin() const noexcept { return ap_packing_offsets(get()); }
    const std::uint64_t *end() const noexcept { return begin() + size(); }
    std::uint64_t operator[](std::size_t buffer) const noexcept { return begin()[buffer]; }
    ap_space_packing space(std::uint32_t index) const {
        ap_space_packing space = sized<ap_space_packing>();
        arenaplan::check(ap_packing_space(get(), index, &space));
        return space;
    }
    std::uint32_t space_of(std::uint64_t buffer) const noexcept {
        return ap_packing_space_of(get(), buffer);
    }
    std::uint64_t nodes() const noexcept { return ap_packing_nodes(get()); }
    // Bytes that are needed if only those buffers leave their old offsets that must.
    std::uint64_t peak_of_staying() const noexcept { return ap_packing_peak_of_staying(get()); }
    void check() const { arenaplan::check(ap_packing_check(get())); }
};

// Numbers of buffers that do not fit a space together.
class Subset : public Handle<ap_subset, ap_subset_free> {
public:
    using Handle::Handle;

    std::size_t size() const noexcept { return ap_subset_count(get()); }
    const std::uint64_t *begin() const noexcept { return ap_subset_buffers(get()); }
    const std::uint64_t *end() const noexcept { return begin() + size(); }
};

// Buffers to be placed.
class Problem : public Handle<ap_problem, ap_problem_free> {
public:
    Problem() : Handle(ap_problem_new()) {}

    void add(std::uint64_t lower, std::uint64_t upper, std::uint64_t bytes,
             std::uint64_t alignment = 1) {
        check(ap_problem_add(get(), lower, upper, bytes, alignment));
    }
    void add(const ap_buffer &buffer) { check(ap_problem_add_buffer(get(), &buffer)); }
    void set_space(std::uint32_t index, const ap_space &space) {
        check(ap_problem_set_space(get(), index, &space));
    }
    void set_range(std::uint64_t buffer, std::uint64_t low, std::uint64_t high) {
        check(ap_problem_set_range(get(), buffer, low, high));
    }
    void set_group(std::uint64_t buffer, std::uint32_t group) {
        check(ap_problem_set_group(get(), buffer, group));
    }
    void may_overlap(std::uint64_t buffer, std::uint64_t other) {
        check(ap_problem_may_overlap(get(), buffer, other));
    }
    void keep_apart(std::uint64_t buffer, std::uint64_t other) {
        check(ap_problem_keep_apart(get(), buffer, other));
    }
    // The two are in different spaces.
    void keep_separate(std::uint64_t buffer, std::uint64_t other) {
        check(ap_problem_keep_separate(get(), buffer, other));
    }
    // The buffer may be in any one of these spaces.
    void set_spaces(std::uint64_t buffer, const std::vector<std::uint32_t> &spaces) {
        check(ap_problem_set_spaces(get(), buffer, spaces.data(), spaces.size()));
    }
    void reserve(std::uint32_t space, std::uint64_t low, std::uint64_t high) {
        check(ap_problem_reserve(get(), space, low, high));
    }
    std::size_t size() const noexcept { return ap_problem_count(get()); }
    Packing solve(const ap_options &options = sized<ap_options>()) const {
        ap_packing *packing = nullptr;
        check(ap_solve(get(), &options, &packing));
        return Packing(packing);
    }
    // Few buffers leave their old offsets; AP_NO_OFFSET is that of a new buffer.
    Packing repack(const std::vector<std::uint64_t> &old,
                   const ap_options &options = sized<ap_options>()) const {
        ap_packing *packing = nullptr;
        check(ap_repack(get(), old.data(), old.size(), &options, &packing));
        return Packing(packing);
    }
    // Empty if it is not proven that the space is too small.
    Subset infeasible_subset(std::uint32_t space = 0,
                             const ap_options &options = sized<ap_options>()) const {
        ap_subset *subset = nullptr;
        check(ap_infeasible_subset(get(), space, &options, &subset));
        return Subset(subset);
    }
};

// A place for every value of a model.
class Plan : public Handle<ap_plan, ap_plan_free> {
public:
    using Handle::Handle;

    static Plan load(const std::string &path, std::uint64_t max_bytes = 0) {
        ap_plan *plan = nullptr;
        check(ap_plan_load(path.c_str(), max_bytes, &plan));
        return Plan(plan);
    }
    // Plans the content of a graph file.
    static Plan make(const std::string &graph,
                     const ap_plan_options &options = sized<ap_plan_options>()) {
        ap_plan *plan = nullptr;
        check(ap_plan_make(graph.data(), graph.size(), &options, &plan));
        return Plan(plan);
    }
    static Plan parse(const std::string &text) {
        ap_plan *plan = nullptr;
        check(ap_plan_parse(text.data(), text.size(), &plan));
        return Plan(plan);
    }
    ap_plan_info describe() const {
        ap_plan_info info = sized<ap_plan_info>();
        check(ap_plan_describe(get(), &info));
        return info;
    }
    ap_plan_space_info space(std::uint32_t index) const {
        ap_plan_space_info space = sized<ap_plan_space_info>();
        check(ap_plan_space(get(), index, &space));
        return space;
    }
    ap_plan_value_info value(std::uint32_t value) const {
        ap_plan_value_info place = sized<ap_plan_value_info>();
        check(ap_plan_value(get(), value, &place));
        return place;
    }
    std::uint32_t find(const std::string &name) const {
        std::uint32_t value = AP_NONE;
        check(ap_plan_find(get(), name.c_str(), &value));
        return value;
    }
    ap_plan_step_info step(std::uint32_t index) const {
        ap_plan_step_info step = sized<ap_plan_step_info>();
        check(ap_plan_step(get(), index, &step));
        return step;
    }
    // Verifies the plan against the content of a graph file.
    void check_against(const std::string &graph) const {
        check(ap_plan_check(get(), graph.data(), graph.size()));
    }
};

// A checked plan for each shape of a model.
class Model : public Handle<ap_model, ap_model_free> {
public:
    using Handle::Handle;

    static Model load(const std::string &path, std::uint64_t max_bytes = 0) {
        ap_model *model = nullptr;
        check(ap_model_load(path.c_str(), max_bytes, &model));
        return Model(model);
    }
    static Model parse(const std::string &text) {
        ap_model *model = nullptr;
        check(ap_model_parse(text.data(), text.size(), &model));
        return Model(model);
    }
    ap_model_info describe() const {
        ap_model_info info = sized<ap_model_info>();
        check(ap_model_describe(get(), &info));
        return info;
    }
    ap_model_shape_info shape(std::uint32_t index) const {
        ap_model_shape_info shape = sized<ap_model_shape_info>();
        check(ap_model_shape(get(), index, &shape));
        return shape;
    }
    std::uint32_t find(const std::vector<ap_dim> &dims, std::uint32_t flags = 0) const {
        std::uint32_t shape = AP_NONE;
        check(ap_model_find(get(), dims.data(), dims.size(), flags, &shape));
        return shape;
    }
    Plan plan(std::uint32_t shape) const {
        ap_plan *plan = nullptr;
        check(ap_model_plan(get(), shape, &plan));
        return Plan(plan);
    }
};

// The addresses of a plan in memory.
class Arena : public Handle<ap_arena, ap_arena_free> {
public:
    using Handle::Handle;

    static Arena bind(const Plan &plan, void *memory, std::size_t bytes) {
        ap_arena *arena = nullptr;
        check(ap_arena_bind(plan.get(), memory, bytes, &arena));
        return Arena(arena);
    }
    static Arena bind(const Plan &plan, const std::vector<ap_memory> &memories) {
        ap_arena *arena = nullptr;
        check(ap_arena_bind_spaces(plan.get(), memories.data(), memories.size(), &arena));
        return Arena(arena);
    }
    static Arena allocate(const Plan &plan) {
        ap_arena *arena = nullptr;
        check(ap_arena_allocate(plan.get(), &arena));
        return Arena(arena);
    }
    ap_memory value(std::uint32_t value) const {
        ap_memory memory = {nullptr, 0};
        check(ap_arena_value(get(), value, &memory));
        return memory;
    }
    ap_step_memory step(std::uint32_t index) const {
        ap_step_memory step = sized<ap_step_memory>();
        check(ap_arena_step(get(), index, &step));
        return step;
    }
};

// The steps that each step of a plan must wait for.
class Hazards : public Handle<ap_hazards, ap_hazards_free> {
public:
    using Handle::Handle;

    // Of a plan that was made with its graph.
    static Hazards of(const Plan &plan) {
        ap_hazards *hazards = nullptr;
        check(ap_hazards_make(plan.get(), nullptr, 0, &hazards));
        return Hazards(hazards);
    }
    // Of a plan and the content of its graph file.
    static Hazards of(const Plan &plan, const std::string &graph) {
        ap_hazards *hazards = nullptr;
        check(ap_hazards_make(plan.get(), graph.data(), graph.size(), &hazards));
        return Hazards(hazards);
    }
    std::size_t size() const noexcept { return ap_hazards_count(get()); }
    const ap_hazard *begin() const noexcept { return ap_hazards_edges(get()); }
    const ap_hazard *end() const noexcept { return begin() + size(); }
};

// A source of arenas below one cap of bytes.
class Pool : public Handle<ap_pool, ap_pool_free> {
public:
    explicit Pool(const ap_pool_options &options = sized<ap_pool_options>())
        : Handle(made(options)) {}

    // The arena gives its memory back when it ends.
    Arena lease(const Plan &plan, std::uint64_t timeout_ms = AP_FOREVER) const {
        ap_arena *arena = nullptr;
        check(ap_pool_lease(get(), plan.get(), timeout_ms, &arena));
        return Arena(arena);
    }
    std::uint64_t trim(std::uint64_t keep = 0) const noexcept { return ap_pool_trim(get(), keep); }
    ap_pool_numbers describe() const {
        ap_pool_numbers numbers = sized<ap_pool_numbers>();
        check(ap_pool_describe(get(), &numbers));
        return numbers;
    }

private:
    static ap_pool *made(const ap_pool_options &options) {
        ap_pool *pool = nullptr;
        check(ap_pool_make(&options, &pool));
        return pool;
    }
};

}  // namespace arenaplan

#endif  // ARENAPLAN_HPP
