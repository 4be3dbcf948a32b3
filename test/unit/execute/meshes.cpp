// SPDX-License-Identifier: BSL-1.0
// Random programs on random meshes compute what the single device computes. `HEDDLE_MESH_CASES` says how many, and
// `HEDDLE_MESH_SEED` where they begin; a failure prints what repeats it.
#include "emulation.hpp"

#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_mesh_programs.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <set>
#include <string>

using namespace heddle;

namespace {

/// How often each kind of instruction has been executed, by axis.
using tally = std::map<std::string, int>;

std::string word(tensor_form f) { return f.is_shard() ? "shard" : to_string(f); }

void count(tally& seen, indexed_program const& indexed, mesh_program const& what) {
    ++seen["mesh " + to_string(what.mesh)];
    if (is_even_inside(plan_on_mesh(indexed, what)))
        ++seen["bytes compared, mesh " + to_string(what.mesh)]; // see `plan_proof::finish`
    if (!what.segments.empty()) ++seen["segments"];
    for (auto const& s : what.steps) {
        std::set<std::string> kinds;
        std::multiset<std::int16_t> loops;
        for (axis_number a = 0; a < s.axes.size(); ++a) {
            auto const& i = s.axes[a];
            std::string const on_axis = " on axis " + std::to_string(a);
            if (is_keep(i)) continue;
            i.visit(
                [&](instruction::read const& r) {
                    ++seen["read " + word(r.to) + (r.from == r.to ? "" : ", state in shards") + on_axis];
                    kinds.insert(r.from == r.to ? "read" : "state in shards");
                },
                [&](instruction::unshard const& u) { ++seen["unshard" + on_axis], ++seen["unshard, " + word(u.to)]; },
                [&](instruction::reshard const&) { ++seen["reshard" + on_axis]; },
                [&](instruction::convert const& c) { ++seen[word(c.from) + " to " + word(c.to) + on_axis]; },
                [&](instruction::compute const& c) {
                    bool const partial = std::ranges::find(c.operands, tensor_form::partial()) != c.operands.end();
                    auto const* const loop =
                        c.loop < 0 ? nullptr : &indexed.operators[c.op].loops[static_cast<std::size_t>(c.loop)];
                    std::string kind = partial ? "partial" : "whole";
                    if (gathers_factors(c)) kind = "factors";
                    else if (loop && loop->exchanges()) kind = "exchange";
                    else if (loop && loop->forward_statistics > 0) kind = "statistics";
                    else if (loop) kind = loop->is_reduction ? "sum" : "split";
                    ++seen[kind + on_axis];
                    if (!kinds.insert(kind).second) ++seen[kind + " on two axes"];
                    if (c.loop >= 0) loops.insert(c.loop);
                });
        }
        if (kinds.size() == 2) ++seen[*kinds.begin() + " with " + *kinds.rbegin()];
        for (auto loop : loops)
            if (loops.count(loop) > 1) ++seen["one loop on two axes"];
    }
    for (auto const& cut : what.cuts)
        if (std::ranges::find(cut.counts, 0) != cut.counts.end()) ++seen["empty slice"];
}

/// What is wrong with one random program; empty if nothing.
std::string check_program(std::uint64_t seed, tally& seen) {
    test::random_source random(seed);
    auto const p = test::catalogue_program(random, random.between(1, 5));
    auto const segments = test::random_segments(p, random);
    auto const indexed = index_program(p, segments);
    auto what = test::random_mesh_program(indexed, test::random_mesh(random), random);
    what.segments = segments;
    auto const told = [&](std::string const& problem) {
        return problem + "\n" + test::describe(p) + test::describe(what);
    };
    if (auto const verified = verify(indexed, what); !verified) return told("refused: " + verified.problem);
    count(seen, indexed, what);
    try {
        bool const has_work = what.mesh.axis_count() > 1 && what.mesh.size(0) > 1;
        auto const shown = test::emulate(p, what, seed, has_work);
        if (shown) return {};
        if (!test::is_unstable(p, seed)) return told(shown.problem);
    } catch (std::exception const& e) {
        if (!test::is_unstable(p, seed)) return told(e.what());
    }
    ++seen["unstable"];
    return {};
}

std::uint64_t number_from(char const* variable, std::uint64_t otherwise) {
    char const* const text = std::getenv(variable);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

} // namespace

TEST_CASE("random programs on random meshes compute what the single device does") {
    auto const first = number_from("HEDDLE_MESH_SEED", 1), number = number_from("HEDDLE_MESH_CASES", test::cases(4000));
    tally seen;
    int failures = 0;
    for (auto seed = first; seed < first + number && failures < 3; ++seed) {
        CAPTURE(seed);
        auto const problem = check_program(seed, seen);
        CHECK_MESSAGE(problem.empty(), problem);
        failures += !problem.empty();
    }
    if (std::getenv("HEDDLE_MESH_CASES")) return; // so many and such cases as somebody wants to see
    CHECK(seen["unstable"] * 500 < static_cast<int>(number));
    if (test::sanitized) return; // too few to have the rare ones
    std::vector<std::string> wanted{"segments", "empty slice", "one loop on two axes", "unshard, replicated",
                                    "unshard, mirrored"};
    for (char const* sizes : {"2 x 2", "2 x 3", "3 x 2", "3 x 4", "2 x 2 x 2", "1 x 3", "4"})
        wanted.push_back("mesh " + std::string(sizes));
    for (char const* sizes : {"2 x 2", "2 x 3", "3 x 4", "2 x 2 x 2"})
        wanted.push_back("bytes compared, mesh " + std::string(sizes));
    for (char const* kind : {"split", "sum", "partial", "whole", "factors", "statistics", "exchange"}) {
        for (char const* axis : {"0", "1", "2"})
            if (kind != std::string("exchange") || axis != std::string("2"))
                wanted.push_back(std::string(kind) + " on axis " + axis);
        if (kind != std::string("exchange")) wanted.push_back(std::string(kind) + " on two axes");
    }
    for (char const* both : {"partial with sum", "factors with split", "partial with split", "statistics with whole",
                             "split with statistics", "split with sum", "factors with sum", "exchange with whole",
                             "read with state in shards"})
        wanted.push_back(both);
    for (char const* axis : {" on axis 0", " on axis 1", " on axis 2"}) {
        for (char const* kind :
             {"read shard", "read replicated", "read mirrored", "read partial", "read replicated, state in shards",
              "read mirrored, state in shards", "unshard", "reshard"})
            wanted.push_back(std::string(kind) + axis);
        for (char const* from : {"replicated", "partial", "mirrored", "shard"})
            for (char const* to : {"replicated", "partial", "mirrored", "shard"})
                if (std::string const a = from, b = to; (a != b || a == "shard") && !(a == "shard" && b == "partial"))
                    wanted.push_back(a + " to " + b + axis);
    }
    std::string rarest;
    int least = 1 << 30;
    for (auto const& kind : wanted) {
        CAPTURE(kind);
        CHECK(seen[kind] > 0);
        if (seen[kind] < least) {
            least = seen[kind];
            rarest = kind;
        }
    }
    MESSAGE(wanted.size() << " kinds; rarest: " << rarest << ", " << least << " times; " << seen["unstable"]
                          << " programs say nothing");
}
