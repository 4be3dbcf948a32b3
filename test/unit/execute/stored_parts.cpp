// SPDX-License-Identifier: BSL-1.0
// What ranks are said to store is what they place, and what they have in common is what is copied.
#include "kernels.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <support/cases.hpp>
#include <support/device_groups.hpp>
#include <support/pipelines.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

using namespace heddle;

namespace {

/// Returns sources whose elements are their places.
source_values<double> numbered_sources(program const& p) {
    source_values<double> sources;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        if (p.tensor(t).role == tensor_role::value) continue;
        auto& x = sources.emplace(t, p.tensor(t).shape).first->second;
        for (extent n = 0; n < x.elements(); ++n) x[n] = static_cast<double>(n);
    }
    return sources;
}

/// Compares what ranks have placed with what they are said to store, and counts parameters that are cut.
class comparison {
public:
    comparison(program const& p, std::vector<stored_parts> said)
        : program_(p), said_(std::move(said)), sources_(numbered_sources(p)) {}

    template <class Rank>
    void compare(Rank const& rank, std::size_t number) {
        auto const placed = rank.place(sources_);
        std::scoped_lock const guard(lock_);
        for (auto const& [t, part] : said_[number]) {
            auto const& whole = sources_.at(t);
            dense_tensor<double> expected(part.shape());
            copy_common(tensor_part::whole(whole.dims), whole, part, expected);
            bool const is_same = placed.contains(t) && placed.at(t) == expected;
            if (!is_same) problem += " rank " + std::to_string(number) + ": " + program_.tensor(t).name;
            cut += part.elements() < whole.elements();
            strided += std::ranges::any_of(part.dimensions, [](auto const& ranges) { return ranges.size() > 1; });
        }
        for (auto const& [t, x] : placed)
            if (program_.tensor(t).role != tensor_role::input && !said_[number].contains(t))
                problem += " unsaid: " + program_.tensor(t).name;
    }

    std::string problem;
    int cut = 0, strided = 0;

private:
    program const& program_;
    std::vector<stored_parts> said_;
    source_values<double> sources_;
    std::mutex lock_;
};

void compare(comparison& with, program const& p, plan const& what) {
    auto const indexed = index_for(p, what);
    run_ranks(ranks_of(what), [&](in_process_communicator& world) {
        on_device<double>(what, world, [&](auto& ranks) {
            with.compare(interpreter(p, indexed, what, ranks, test::kernels()), world.rank());
        });
    });
}

} // namespace

TEST_CASE("ranks of random plans, of meshes, device groups and pipelines store the parts that they are said to") {
    int cut = 0, strided = 0, pipelines = 0;
    auto const checked = [&](program const& p, std::vector<stored_parts> said, auto const& run) {
        comparison with(p, std::move(said));
        run(with);
        CHECK(with.problem == "");
        cut += with.cut;
        strided += with.strided;
    };
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 4, .most_operators = 10});
        auto const indexed = index_program(p);
        auto const line = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        checked(p, stored_parts_of(p, line), [&](comparison& with) { compare(with, p, line); });
        auto const mesh = plan_on_mesh(indexed, test::random_mesh_program(indexed, test::random_mesh(random), random));
        checked(p, stored_parts_of(p, mesh), [&](comparison& with) { compare(with, p, mesh); });
        try {
            auto const grouped = test::random_grouped_case(seed);
            checked(grouped.program, stored_parts_of(grouped.program, grouped.plan),
                    [&](comparison& with) { compare(with, grouped.program, grouped.plan); });
        } catch (input_error const&) {} // no program of the catalogue
        if (p.operator_count() < 2) continue;
        try {
            auto const split = split_along_batch(indexed);
            auto const group = test::random_group(indexed, split, 2, random, 20);
            if (!group) continue;
            auto pipeline = test::pipeline_of(p, {0, p.operator_count() / 2, p.operator_count()}, 2, 2, 0, {2, 1});
            pipeline.groups.emplace(2, *group);
            checked(p, stored_parts_of(p, pipeline), [&](comparison& with) {
                pipeline_layout const layout(indexed, pipeline, split);
                run_ranks(layout.ranks(), [&](in_process_communicator& world) {
                    stage_rank<dense_tensor<double>, in_process_communicator> here(indexed, split, layout, world);
                    with.compare(interpreter(p, indexed, here, test::kernels()), world.rank());
                });
            });
            ++pipelines;
        } catch (input_error const&) {} // it cannot run in micro-batches
    }
    MESSAGE(cut, " parts, ", strided, " of them not of one piece; ", pipelines, " pipelines");
    CHECK(cut > test::cases(300));
    CHECK((strided > 12 || test::sanitized)); // a quarter of the cases may have none
    CHECK(pipelines > test::cases(20));
}

TEST_CASE("what two parts have in common is what both have") {
    test::random_source random(5);
    for (int n = 0; n < test::cases(500); ++n) {
        CAPTURE(n);
        tensor_shape const shape{random.between(0, 7), random.between(1, 6)};
        dense_tensor<double> whole(shape);
        for (extent e = 0; e < whole.elements(); ++e) whole[e] = static_cast<double>(e + 1);
        auto const random_part = [&] {
            tensor_part part;
            for (extent places : shape) {
                auto& ranges = part.dimensions.emplace_back();
                for (int begin = random.between(0, 2); begin < places;) {
                    int const end = random.between(begin + 1, static_cast<int>(places));
                    ranges.push_back({begin, end - begin});
                    begin = end + random.between(1, 3);
                }
            }
            return part;
        };
        auto const first = random_part(), second = random_part();
        dense_tensor<double> of_first(first.shape()), of_second(second.shape()), both(second.shape());
        copy_common(tensor_part::whole(shape), whole, first, of_first);
        copy_common(tensor_part::whole(shape), whole, second, of_second);
        extent const copied = copy_common(first, of_first, second, both);
        CHECK(copied == count_common(first, second));
        extent common = 0;
        for (extent e = 0; e < both.elements(); ++e) {
            bool const is_in_first = std::ranges::find(of_first.data, of_second[e]) != of_first.data.end();
            CHECK(both[e] == (is_in_first ? of_second[e] : 0));
            common += is_in_first;
        }
        CHECK(common == copied);
    }
}
