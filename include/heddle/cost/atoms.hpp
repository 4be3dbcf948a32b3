// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Atoms: what must be cut at the same points, and how many atoms each device gets.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Factors that are cut at the same points. Device `d` has `counts[d]` of `atoms`; its share of a member is counts[d] *
/// extent / atoms, and lies after the shares of the devices before it.
///
/// On a mesh, factors are cut on whatever axes, and that is so on the outermost. A slice with `a` of the atoms has a
/// class of exactly `a`: a member's extent there is `a` times that of an atom, and these have no common divisor. So an
/// axis divides the atoms that the axes outside left, and how is a function of the axis, of the class and of how many
/// they are, and of nothing else; else the lines along an axis that does not cut the class would not hold corresponding
/// parts.
struct atom_class {
    extent atoms = 0;
    std::vector<cut_factor> members;
    std::vector<extent> counts;
    segment_number segment = 0;
    /// By axis inside the outermost, and by the number of atoms to be divided: how many each place on the axis gets.
    std::vector<std::map<extent, std::vector<extent>>> inside{};

    /// Returns how an axis divides some atoms. *Precondition:* they are what the axes outside may leave.
    [[nodiscard]] std::vector<extent> const& parts(std::size_t axis, extent left) const {
        return axis == 0 ? counts : inside[axis - 1].at(left);
    }
};

/// Holds one ratio per device for each segment.
using ratio_table = std::vector<std::vector<double>>;

/// Returns the classes of what a program shards: factors that are tied by the loop a computation is split along. Atoms
/// are the greatest common divisor of the members' extents. Classes are in the order of their first use.
[[nodiscard]] std::vector<atom_class> atom_classes(indexed_program const& p, std::span<instruction const> instructions);

/// Gives each device whole atoms near its ratio: the floor of its part, and what is left to the devices with the
/// largest remainders. If `carry` is given, it says what rounding owes each device; it is added to the remainders and
/// updated.
[[nodiscard]] std::vector<extent> apportion(extent atoms, std::span<double const> ratios,
                                            std::vector<double>* carry = nullptr);

/// Apportions class after class and carries remainders along, so that they do not always go to the same devices.
void apportion(std::vector<atom_class>& classes, ratio_table const& ratios);

/// Holds shares by up to three numbers.
using shares_by_numbers = std::map<std::array<extent, 3>, share_vector>;

/// Returns the shares of a factor on each device, in whole atoms: those of the class that cuts the factor, or what
/// apportioning the factor alone gives.
/// *Thread safety.* Results are cached without a lock, so only one thread may use it at a time.
class integral_shares {
public:
    integral_shares(ratio_table ratios, std::span<atom_class const> classes = {});
    /// Also has shares for factors of `program` that no class cuts.
    integral_shares(indexed_program const& program, ratio_table ratios, std::span<atom_class const> classes = {});
    /// As above, with the same ratios in every segment.
    integral_shares(indexed_program const& program, std::vector<double> const& ratios,
                    std::span<atom_class const> classes = {})
        : integral_shares(program, ratio_table(segment_count(program), ratios), classes) {}

    /// Tells whether factors of equal extent have equal shares.
    [[nodiscard]] bool is_by_extent() const { return cut_.empty(); }

    /// *Throws* `input_error` if no class cuts the factor and there is no program.
    [[nodiscard]] share_vector const& operator()(share_ref ref) const;

private:
    share_vector const& alone(share_ref ref) const;
    share_vector const& of_class(std::size_t number, extent inside) const;
    static share_vector fractions(std::span<extent const> counts, extent atoms, extent inside);

    indexed_program const* program_ = nullptr;
    ratio_table ratios_;
    std::vector<atom_class> classes_;
    std::map<cut_factor, std::size_t> cut_;
    mutable shares_by_numbers of_class_; ///< by class and cuts inside
    mutable shares_by_numbers alone_;    ///< by segment, extent and cuts inside
};

/// Returns whole shares of one class of devices that are all alike: the largest share at even ratios.
/// *Thread safety.* Results are cached without a lock, so only one thread may use it at a time.
class most_even_shares {
public:
    /// Keeps a reference to the program. *Precondition:* there is a device.
    most_even_shares(indexed_program const& program, int devices) : program_(&program), devices_(devices) {}

    [[nodiscard]] static bool is_by_extent() { return true; }
    [[nodiscard]] share_vector const& operator()(share_ref ref) const;

private:
    indexed_program const* program_;
    extent devices_;
    mutable shares_by_numbers by_extent_; ///< and cuts inside
};

/// Returns shares as fractions, by segment and class of devices.
class segment_shares {
public:
    segment_shares(indexed_program const& program, ratio_table ratios)
        : program_(program), ratios_(std::move(ratios)) {}
    [[nodiscard]] share_vector const& operator()(share_ref ref) const {
        return ratios_.at(program_.tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].segment);
    }

private:
    indexed_program const& program_;
    ratio_table ratios_;
};

/// Returns integral shares by class of devices: the largest share that a device of the class has.
class largest_shares {
public:
    largest_shares(integral_shares shares, std::vector<std::size_t> class_of_device)
        : shares_(std::move(shares)), class_of_device_(std::move(class_of_device)) {}

    [[nodiscard]] bool is_by_extent() const { return shares_.is_by_extent(); }

    [[nodiscard]] share_vector const& operator()(share_ref ref) const;

private:
    integral_shares shares_;
    std::vector<std::size_t> class_of_device_;
    mutable std::map<share_vector const*, share_vector> by_devices_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/step.hpp>
#include <heddle/theory/batch.hpp>

namespace heddle {

HEDDLE_INLINE std::vector<atom_class> atom_classes(indexed_program const& p,
                                                   std::span<instruction const> instructions) {
    std::map<cut_factor, std::size_t> number;
    std::vector<cut_factor> factors;
    std::vector<std::size_t> parent;
    auto const find = [&](std::size_t n) {
        while (parent[n] != n) n = parent[n] = parent[parent[n]];
        return n;
    };
    auto const add = [&](tensor_id t, tensor_form f) {
        auto const [slot, is_new] = number.try_emplace({t, f.factor()}, factors.size());
        if (is_new) {
            factors.push_back(slot->first);
            parent.push_back(parent.size());
        }
        return slot->second;
    };
    for (auto const& i : instructions) {
        auto const* const compute = i.as<instruction::compute>();
        if (!compute) {
            auto const& [t, from, to] = *i.change();
            if (from.is_shard()) add(t, from);
            if (to.is_shard()) add(t, to);
            continue;
        }
        auto const& op = p.operators[compute->op];
        auto const number_of_loop = static_cast<std::size_t>(compute->loop); // there may be no such loop
        auto const* const loop = number_of_loop < op.loops.size() ? &op.loops[number_of_loop] : nullptr;
        std::optional<std::size_t> first, destination; // rows and where they are sent to are cut at points of their own
        auto const tie = [&](tensor_id t, tensor_form f, std::optional<std::size_t>& to) {
            if (!f.is_shard()) return;
            std::size_t const n = find(add(t, f));
            std::size_t const m = find(to.value_or(n));
            parent[std::max(m, n)] = std::min(m, n);
            to = std::min(m, n);
        };
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            tie(op.operands[k], compute->operands[k],
                loop && loop->exchanges() && loop->is_destination[k] ? destination : first);
        for (std::size_t k = 0; k < op.results.size(); ++k) tie(op.results[k], compute->results[k], first);
    }
    std::vector<atom_class> classes;
    std::map<std::size_t, std::size_t> class_of;
    for (std::size_t n = 0; n < factors.size(); ++n) {
        auto const [slot, is_new] = class_of.try_emplace(find(n), classes.size());
        if (is_new) classes.emplace_back();
        auto& c = classes[slot->second];
        auto const& cut = p.tensors[factors[n].tensor].factors[static_cast<std::size_t>(factors[n].factor)];
        c.members.push_back(factors[n]);
        c.atoms = std::gcd(c.atoms, cut.extent);
        c.segment = cut.segment; // of all members: what ties them is of one segment
    }
    return classes;
}

HEDDLE_INLINE std::vector<extent> apportion(extent atoms, std::span<double const> ratios, std::vector<double>* carry) {
    std::vector<extent> counts(ratios.size());
    std::vector<double> remainder(ratios.size());
    extent left = atoms;
    for (std::size_t d = 0; d < ratios.size(); ++d) {
        double const part = ratios[d] * static_cast<double>(atoms);
        counts[d] = std::min(left, static_cast<extent>(std::floor(part + 1e-9)));
        left -= counts[d];
        remainder[d] = ratios[d] > 0 ? part - static_cast<double>(counts[d]) + (carry ? (*carry)[d] : 0) : -2;
    }
    extent const all = static_cast<extent>(ratios.size());
    for (extent& count : counts) count += left / all;
    if (auto const chosen = static_cast<std::size_t>(left % all); chosen > 0) {
        auto order = remainder;
        auto const last = order.begin() + static_cast<std::ptrdiff_t>(chosen - 1);
        std::nth_element(order.begin(), last, order.end(), std::greater<>());
        double const least = *last;
        auto ties =
            chosen - static_cast<std::size_t>(algorithm::count_if(remainder, [&](double r) { return r > least; }));
        for (std::size_t d = 0; d < counts.size(); ++d) // of equal remainders, those of the first devices
            if (remainder[d] > least || (remainder[d] == least && ties > 0 && ties-- > 0)) ++counts[d];
    }
    if (carry)
        for (std::size_t d = 0; d < ratios.size(); ++d)
            (*carry)[d] = std::clamp(
                (*carry)[d] + ratios[d] * static_cast<double>(atoms) - static_cast<double>(counts[d]), -0.5, 0.5);
    return counts;
}

HEDDLE_INLINE void apportion(std::vector<atom_class>& classes, ratio_table const& ratios) {
    ratio_table carry;
    for (auto const& row : ratios) carry.emplace_back(row.size(), 0.0);
    for (auto& c : classes) c.counts = apportion(c.atoms, ratios.at(c.segment), &carry[c.segment]);
}

HEDDLE_INLINE integral_shares::integral_shares(ratio_table ratios, std::span<atom_class const> classes)
    : ratios_(std::move(ratios)) {
    for (auto const& c : classes) {
        for (auto const& m : c.members) cut_[m] = classes_.size();
        classes_.push_back(c);
    }
}

HEDDLE_INLINE integral_shares::integral_shares(indexed_program const& program, ratio_table ratios,
                                               std::span<atom_class const> classes)
    : integral_shares(std::move(ratios), classes) {
    program_ = &program;
    std::erase_if(
        cut_, [&](auto const& cut) { return alone({cut.first.tensor, cut.first.factor}) == of_class(cut.second, 1); });
}

HEDDLE_INLINE share_vector const& integral_shares::operator()(share_ref ref) const {
    if (auto const found = cut_.find({ref.tensor, ref.factor}); found != cut_.end())
        return of_class(found->second, ref.inside);
    if (!program_)
        throw input_error("tensor " + std::to_string(ref.tensor),
                          "no cut says how its factor " + std::to_string(ref.factor) + " is sharded");
    return alone(ref);
}

HEDDLE_INLINE share_vector const& integral_shares::alone(share_ref ref) const {
    factor const& cut = program_->tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)];
    auto const [slot, is_new] = alone_.try_emplace({static_cast<extent>(cut.segment), cut.extent, ref.inside});
    if (is_new) slot->second = fractions(apportion(cut.extent, ratios_.at(cut.segment)), cut.extent, ref.inside);
    return slot->second;
}

HEDDLE_INLINE share_vector const& integral_shares::of_class(std::size_t number, extent inside) const {
    auto const [slot, is_new] = of_class_.try_emplace({static_cast<extent>(number), inside});
    if (is_new) slot->second = fractions(classes_[number].counts, classes_[number].atoms, inside);
    return slot->second;
}

HEDDLE_INLINE share_vector integral_shares::fractions(std::span<extent const> counts, extent atoms, extent inside) {
    share_vector shares;
    for (extent count : counts)
        shares.push_back(static_cast<double>(most_atoms(count, inside) * inside) / static_cast<double>(atoms));
    return shares;
}

HEDDLE_INLINE share_vector const& most_even_shares::operator()(share_ref ref) const {
    extent const all = program_->tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].extent;
    auto& share = by_extent_[{all, ref.inside}];
    extent const each = most_atoms(most_atoms(all, devices_), ref.inside);
    if (share.empty()) share.push_back(static_cast<double>(each * ref.inside) / static_cast<double>(all));
    return share;
}

HEDDLE_INLINE share_vector const& largest_shares::operator()(share_ref ref) const {
    auto const& all = shares_(ref);
    auto& largest = by_devices_[&all];
    if (largest.empty()) {
        largest.resize(algorithm::max(class_of_device_) + 1);
        for (std::size_t d = 0; d < all.size(); ++d)
            largest[class_of_device_[d]] = std::max(largest[class_of_device_[d]], all[d]);
    }
    return largest;
}

} // namespace heddle

#endif
