// SPDX-License-Identifier: BSL-1.0
// heddle reshard saves a checkpoint as the ranks of another plan would have, and says what they have to get.
#include "commands.hpp"
#include "planned_training.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/json/checkpoint.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace heddle::cli {

namespace {

/// The bytes of one rank of the new plan that the rank of the same number had before, and those that come from others.
struct rank_bytes {
    std::int64_t kept = 0, received = 0;
};

std::vector<rank_bytes> bytes_of(json::checkpoint const& from, json::checkpoint const& to) {
    std::vector<rank_bytes> result;
    for (std::size_t rank = 0; rank < to.ranks.size(); ++rank) {
        auto& of = result.emplace_back();
        for (auto const& [name, part] : to.ranks[rank]) {
            auto const copies = static_cast<std::int64_t>(1 + (to.tensors.at(name).has_moments ? to.moments : 0));
            auto const size = copies * element_size(to.type);
            extent had = 0;
            if (rank < from.ranks.size())
                if (auto const found = from.ranks[rank].find(name); found != from.ranks[rank].end())
                    had = count_common(found->second, part);
            of.kept += had * size;
            of.received += (part.elements() - had) * size;
        }
    }
    return result;
}

template <class Scalar>
void save_as(std::filesystem::path const& folder, json::checkpoint const& to, json::checkpoint_reader& from) {
    for (std::size_t rank = 0; rank < to.ranks.size(); ++rank)
        json::save_rank<Scalar>(folder, to, rank, [&](std::string const& name, json::checkpoint_kind kind) {
            return from.read<Scalar>(name, kind, to.ranks[rank].at(name));
        });
    json::commit(folder, to);
}

} // namespace

int run_reshard(reshard_arguments const& arguments) {
    auto const what = read_training(arguments.plan, arguments.model);
    json::checkpoint_reader from(arguments.from);
    auto const parts = what.stored();
    require_fit(from.index(), from.name(), what.model.program, parts);
    if (std::filesystem::exists(json::index_of(arguments.to)))
        throw input_error(arguments.to, "has a checkpoint already; write to another folder");
    auto to = from.index();
    auto const layout = json::describe(what.model.program, parts);
    to.model = what.model.name;
    to.tensors = layout.tensors;
    to.ranks = layout.ranks;
    to.save = 1;
    if (to.type == element_type::float32) save_as<float>(arguments.to, to, from);
    else save_as<double>(arguments.to, to, from);

    auto const ranks = bytes_of(from.index(), to);
    rank_bytes all;
    for (auto const& r : ranks) all = {all.kept + r.kept, all.received + r.received};
    if (arguments.json) {
        nlohmann::ordered_json out;
        out["step"] = to.step;
        for (auto const& r : ranks) out["ranks"].push_back({{"kept", r.kept}, {"received", r.received}});
        out["kept"] = all.kept;
        out["received"] = all.received;
        std::cout << out.dump() << '\n';
        return done;
    }
    std::printf("%s at step %llu: from %zu ranks to %zu\n%6s %16s %16s\n", printable(to.model).c_str(),
                static_cast<unsigned long long>(to.step), from.index().ranks.size(), ranks.size(), "rank", "bytes kept",
                "bytes received");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        std::printf("%6zu %16lld %16lld\n", rank, static_cast<long long>(ranks[rank].kept),
                    static_cast<long long>(ranks[rank].received));
    std::printf("%6s %16lld %16lld\n", "all", static_cast<long long>(all.kept), static_cast<long long>(all.received));
    return done;
}

} // namespace heddle::cli
