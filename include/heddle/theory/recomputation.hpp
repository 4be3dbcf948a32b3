// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which values are made again for the backward pass, and how they are parted into regions that are made again
/// one after another.
///
/// What passes from one region to another is kept, and so is whatever else a region is made of again. Chen et al.,
/// "Training Deep Nets with Sublinear Memory Cost" (2016); what a selective recomputation keeps is that of Korthikanti
/// et al., "Reducing Activation Recomputation in Large Transformer Models" (2023), sections 5 and 6.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace heddle {

/// Returns the region of which an operator makes something again or uses something that is, or `no_region`.
/// *Precondition:* it is one.
[[nodiscard]] region_number region_of(indexed_program const& p, operator_id o);

/// Puts values into regions that are made again, the last one first, by the sizes of values on one device: so that what
/// is kept for each of `in_flight` micro-batches and what the largest region saves are least together.
///
/// What exchanges of rows make is kept. Selectively, so is what matrix products with parameters, convolutions and
/// attention make, unless they save more beside it.
/// *Complexity.* O(n m) for n operators, of which a region has m, for each of a logarithmic number of sizes.
void recompute(indexed_program& p, recomputation how, int in_flight);

/// Notes how much a search counts of what each region saves: all of the largest ones together once, nothing of others.
/// No plan holds less, and one holds as much if it treats equal regions alike.
void count_regions(indexed_program& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

/// Chooses where regions begin.
class region_cutter {
public:
    region_cutter(indexed_program const& p, recomputation how, int in_flight);
    void cut(indexed_program& p) const;

private:
    /// What an operator makes: where it is used last, the bytes that are kept if it is used in another region, and
    /// those that its own region saves otherwise.
    struct made {
        operator_id last_use = 0;
        double kept = 0, inside = 0;
        /// The bytes that it saves beside operands and results.
        double beside = 0;
        bool is_kept = false;
    };
    struct cuts {
        double kept = 0, most = 0;
        std::vector<std::size_t> begins;
    };
    /// Returns the cuts that keep least, if no region of several operators saves more than this.
    [[nodiscard]] cuts within(double most) const;

    std::vector<made> made_;
    double in_flight_;
};

/// Tells whether a selective recomputation keeps what an operator makes. `are_weights` tells which tensors are made of
/// parameters alone, and `made` how many bytes its results have.
[[nodiscard]] inline bool is_costly(indexed_operator const& op, std::vector<bool> const& are_weights, bytes made) {
    if (op.work.extra_saved > made) return false;
    switch (op.work.category) {
    case operator_class::convolution:
    case operator_class::attention: return true;
    case operator_class::matmul: return algorithm::any_of(op.operands, [&](tensor_id t) { return are_weights[t]; });
    default: return false;
    }
}

HEDDLE_INLINE region_cutter::region_cutter(indexed_program const& p, recomputation how, int in_flight)
    : in_flight_(in_flight) {
    std::vector<bool> are_weights, is_saved(p.tensors.size()), is_kept(p.tensors.size());
    for (auto const& t : p.tensors) are_weights.push_back(t.is_parameter());
    for (auto const& op : p.operators) {
        for (auto k : op.work.saved_operands) is_saved[op.operands[k]] = true;
        for (auto k : op.work.saved_results) is_saved[op.results[k]] = true;
    }
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        auto const& op = p.operators[o];
        auto& m = made_.emplace_back();
        m.last_use = o;
        bool const is_weight =
            !op.operands.empty() && algorithm::all_of(op.operands, [&](tensor_id t) { return are_weights[t]; });
        for (auto t : op.results) {
            auto const& tensor = p.tensors[t];
            are_weights[t] = is_weight;
            if (!tensor.consumers.empty()) m.last_use = std::max(m.last_use, tensor.consumers.back());
            m.kept += tensor.info.size().value;
            if (is_saved[t]) m.inside += tensor.info.size().value;
        }
        bool const exchanges = algorithm::any_of(op.loops, [](split_loop const& loop) { return loop.exchanges(); });
        m.is_kept = exchanges;
        if (how == recomputation::selective) { // what is made of kept values that nobody else saves holds as much
            double held = 0;
            for (auto t : op.operands)
                if (is_kept[t] && !is_saved[t]) held += p.tensors[t].info.size().value;
            m.is_kept = m.is_kept || is_costly(op, are_weights, bytes(m.kept)) || (held > 0 && held >= m.inside);
        }
        for (auto t : op.results) is_kept[t] = m.is_kept;
        m.beside = m.is_kept ? 0 : op.work.extra_saved.value;
    }
}

HEDDLE_INLINE region_cutter::cuts region_cutter::within(double most) const {
    struct best {
        double kept = std::numeric_limits<double>::infinity(), most = 0;
        std::size_t begin = 0;
    };
    std::vector<best> until(made_.size() + 1);
    until[0].kept = 0;
    for (std::size_t end = 1; end <= made_.size(); ++end) {
        double kept = 0, inside = 0;
        for (std::size_t begin = end; begin-- > 0;) {
            auto const& m = made_[begin];
            inside += m.beside;
            if (m.last_use >= end) kept += m.is_kept ? 0 : m.kept;
            else if (!m.is_kept) inside += m.inside;
            if (inside > most && begin + 1 < end) break;
            double const all = until[begin].kept + kept;
            if (all < until[end].kept) until[end] = {all, std::max(until[begin].most, inside), begin};
        }
    }
    cuts result{until.back().kept, until.back().most, {}};
    for (std::size_t end = made_.size(); end > 0; end = until[end].begin)
        result.begins.push_back(until[end].begin); // the last one first
    return result;
}

HEDDLE_INLINE void region_cutter::cut(indexed_program& p) const {
    double all = 0;
    for (auto const& m : made_) all += m.beside + (m.is_kept ? 0 : m.inside);
    auto const sum = [&](cuts const& c) { return in_flight_ * c.kept + c.most; };
    auto best = within(all);
    constexpr double finer = 0.8;
    for (double most = finer * all; most > 0;) {
        auto found = within(most);
        if (found.most > most) break; // one operator saves as much
        most = finer * std::min(most, found.most);
        if (sum(found) < sum(best)) best = std::move(found);
        else if (in_flight_ * found.kept > sum(best)) break;
    }
    region_number region = 0;
    std::size_t end = made_.size();
    for (auto const begin : best.begins) {
        for (auto o = begin; o < end; ++o) {
            bool const is_made_again = !made_[o].is_kept && made_[o].last_use < end;
            for (auto t : p.operators[o].results) p.tensors[t].region = is_made_again ? region : no_region;
        }
        end = begin;
        region = static_cast<region_number>(std::min<int>(region + 1, std::numeric_limits<region_number>::max()));
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE region_number region_of(indexed_program const& p, operator_id o) {
    auto const& op = p.operators[o];
    for (auto const* list : {&op.results, &op.operands})
        for (auto t : *list)
            if (auto const region = p.tensors[t].region; region != no_region) return region;
    return no_region;
}

HEDDLE_INLINE void recompute(indexed_program& p, recomputation how, int in_flight) {
    for (auto& t : p.tensors) t.region = no_region;
    if (how != recomputation::none && !p.operators.empty()) detail::region_cutter(p, how, in_flight).cut(p);
    count_regions(p);
}

HEDDLE_INLINE void count_regions(indexed_program& p) {
    std::vector<double> saved;
    std::vector<bool> is_seen(p.tensors.size());
    auto const add = [&](region_number region, bytes size) {
        if (region == no_region) return;
        if (auto const count = static_cast<std::size_t>(region) + 1; saved.size() < count) saved.resize(count);
        saved[static_cast<std::size_t>(region)] += size.value;
    };
    auto const add_tensor = [&](tensor_id t) {
        if (!is_seen[t]) add(p.tensors[t].region, p.tensors[t].info.size());
        is_seen[t] = true;
    };
    for (auto const& op : p.operators) {
        for (auto k : op.work.saved_operands) add_tensor(op.operands[k]);
        for (auto k : op.work.saved_results) add_tensor(op.results[k]);
        if (!op.results.empty()) add(p.tensors[op.results.front()].region, op.work.extra_saved);
    }
    p.counted_of_regions.assign(saved.size(), 0.0);
    if (saved.empty()) return;
    constexpr double nearly = 0.95;
    double const large = nearly * algorithm::max(saved);
    auto const count = static_cast<double>(std::ranges::count_if(saved, [&](double s) { return s >= large; }));
    for (std::size_t r = 0; r < saved.size(); ++r)
        if (saved[r] >= large) p.counted_of_regions[r] = 1 / count;
}

} // namespace heddle

#endif
