// Replaces a call of minimalloc: minimalloc FILE.csv CAPACITY
//
// A program that calls minimalloc has a `minimalloc::Problem` and asks for offsets:
//
//     minimalloc::Solver solver(params);
//     absl::StatusOr<minimalloc::Solution> solution = solver.Solve(problem);
//
// `Solve` below takes the same buffers and returns the same offsets. The types stand for those of
// minimalloc.h, with the same fields.

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "arenaplan.hpp"

namespace allocator {

struct Lifespan {
    std::int64_t lower = 0;
    std::int64_t upper = 0;
};

struct Gap {
    Lifespan lifespan;
};

struct Buffer {
    std::string id;
    Lifespan lifespan;
    std::int64_t size = 0;
    std::int64_t alignment = 1;
    std::vector<Gap> gaps;
    std::optional<std::int64_t> offset;
};

struct Problem {
    std::vector<Buffer> buffers;
    std::int64_t capacity = 0;
};

struct Solution {
    std::vector<std::int64_t> offsets;
};

// Returns offsets below the capacity, or nothing if none were found within the time limit; throws
// arenaplan::Error for a malformed problem. Negative numbers become numbers that are refused.
std::optional<Solution> Solve(const Problem &problem, std::chrono::milliseconds time_limit) {
    arenaplan::Problem packing_problem;
    for (const Buffer &from : problem.buffers) {
        std::vector<ap_gap> gaps;
        for (const Gap &gap : from.gaps) {
            gaps.push_back({static_cast<std::uint64_t>(gap.lifespan.lower),
                            static_cast<std::uint64_t>(gap.lifespan.upper), 0, 0});
        }
        auto buffer = arenaplan::sized<ap_buffer>();
        buffer.lower = static_cast<std::uint64_t>(from.lifespan.lower);
        buffer.upper = static_cast<std::uint64_t>(from.lifespan.upper);
        buffer.bytes = static_cast<std::uint64_t>(from.size);
        buffer.alignment = static_cast<std::uint64_t>(from.alignment);
        buffer.gaps = gaps.data();
        buffer.gap_count = static_cast<std::uint32_t>(gaps.size());
        if (from.offset) {
            buffer.flags = AP_BUFFER_FIXED;
            buffer.offset = static_cast<std::uint64_t>(*from.offset);
        }
        packing_problem.add(buffer);
    }
    auto options = arenaplan::sized<ap_options>();
    options.capacity = static_cast<std::uint64_t>(problem.capacity);
    options.time_limit_ms = static_cast<std::uint64_t>(time_limit.count());
    const arenaplan::Packing packing = packing_problem.solve(options);
    if (!packing.fits()) return std::nullopt;
    return Solution{{packing.begin(), packing.end()}};
}

}  // namespace allocator

namespace {

// Reads the columns id, lower, upper and size.
allocator::Problem Read(const char *path, std::int64_t capacity) {
    allocator::Problem problem;
    problem.capacity = capacity;
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line) || line != "id,lower,upper,size") {
        throw std::runtime_error(std::string(path) + " has no columns id,lower,upper,size");
    }
    while (std::getline(file, line)) {
        std::istringstream row(line);
        allocator::Buffer buffer;
        char comma = ',';
        std::getline(row, buffer.id, ',');
        row >> buffer.lifespan.lower >> comma >> buffer.lifespan.upper >> comma >> buffer.size;
        if (!row) throw std::runtime_error(line + ": not a row");
        problem.buffers.push_back(buffer);
    }
    return problem;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: minimalloc FILE.csv CAPACITY\n";
        return 2;
    }
    try {
        const allocator::Problem problem = Read(argv[1], std::stoll(argv[2]));
        // No time limit: the answer depends on the problem alone.
        const auto solution = allocator::Solve(problem, std::chrono::milliseconds(0));
        if (!solution) {
            std::cerr << "no offsets below " << problem.capacity << " were found\n";
            return 1;
        }
        for (std::size_t i = 0; i < problem.buffers.size(); i++) {
            std::cout << problem.buffers[i].id << ',' << solution->offsets[i] << '\n';
        }
    } catch (const std::exception &error) {
        std::cerr << argv[1] << ": " << error.what() << '\n';
        return 2;
    }
    return 0;
}
