// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where a loosened program gives up and restores tensors, and in which forms it does.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/operator_cuts.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// A tensor that is given up after its last use, and the one that is had again in the same forms at its first.
struct restoration {
    tensor_id early, late;
    /// The operators that give up the one, and restore the other.
    operator_id giver, restorer;
    /// Whether states are to tell between them if there was a whole copy.
    bool has_token = false;
};

/// The restorations of a program, with the sets of forms that tensors were given up in so far. Where operators of one
/// kind give up tensors in one position is one place, with one list of sets.
class restorations {
public:
    using form_codes = std::vector<std::uint16_t>;

    /// Takes others; the sets of places that were known are kept.
    void set(indexed_program const& p, std::vector<operator_id> const& kinds, std::vector<restoration> const& list);

    [[nodiscard]] bool empty() const { return restored_by_.empty(); }
    [[nodiscard]] bool is_given_up(tensor_id t) const { return given_up_at_[t] != none; }
    /// Returns the tensor that restores one that is given up.
    [[nodiscard]] tensor_id late_of(tensor_id early) const { return late_of_[early]; }
    /// Returns, by operator, the tensors that restore what it gives up with a token, each after the number of the place
    /// where that is; nothing if nothing is restored.
    [[nodiscard]] std::vector<numbered_tensors> const& awaited_after() const { return awaited_after_; }
    /// Returns the tensors that an operator restores, each after where it has it.
    [[nodiscard]] numbered_tensors const& restored_by(std::size_t op) const { return restored_by_[op]; }
    /// Returns the sets in which the tensor that this one restores was given up.
    [[nodiscard]] std::vector<form_codes> const& sets_for(tensor_id late) const { return sets_[restored_from_[late]]; }
    /// Notes a set that a tensor is given up in, with ascending codes, and returns the one that is restored for it: all
    /// forms that the tensor may have, where several were given up and many sets are known already, or where it is a
    /// bias or a scale, whose costs are small next to those of what it is used with. No program is dearer for that, as
    /// what is there in more forms needs fewer conversions.
    form_codes const& note(tensor_id early, indexed_tensor const& tensor, form_codes forms);
    /// Calls `add(number)` for numbers that tell apart what an operator may restore by now.
    template <class Add>
    void for_each_number(std::size_t op, Add const& add) const {
        add(restored_by_[op].size());
        for (auto const& [position, t] : restored_by_[op])
            add(position), add(restored_from_[t]), add(sets_for(t).size());
    }

    /// Returns how many sets each place has, to be cut back to.
    [[nodiscard]] std::vector<std::size_t> sizes() const {
        std::vector<std::size_t> result;
        for (auto const& sets : sets_) result.push_back(sets.size());
        return result;
    }
    void cut_back(std::vector<std::size_t> const& sizes) {
        for (std::size_t n = 0; n < sets_.size(); ++n) sets_[n].resize(n < sizes.size() ? sizes[n] : 0);
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    /// How many sets of a place are told apart. They might be all subsets of its forms, and an operator that restores
    /// several tensors may do so in every combination of theirs.
    static constexpr std::size_t most_sets = 64;

    /// By tensor, the number of the place where it is given up, and of where what it restores is, or none.
    std::vector<std::uint32_t> given_up_at_, restored_from_;
    std::vector<tensor_id> late_of_;
    std::vector<numbered_tensors> restored_by_, awaited_after_;
    std::map<std::pair<operator_id, tensor_id>, std::uint32_t> places_;
    /// By place, in the order in which they were met.
    std::vector<std::vector<form_codes>> sets_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/form.hpp>
#include <heddle/theory/operator_kinds.hpp>

namespace heddle {

HEDDLE_INLINE void restorations::set(indexed_program const& p, std::vector<operator_id> const& kinds,
                                     std::vector<restoration> const& list) {
    given_up_at_.assign(p.tensors.size(), none);
    restored_from_ = given_up_at_;
    late_of_.assign(p.tensors.size(), 0);
    restored_by_.assign(p.operators.size() + 1, {}); // with the end
    awaited_after_.assign(list.empty() ? 0 : p.operators.size(), {});
    for (auto const& r : list) {
        auto const place = std::pair(kinds[r.giver], counterpart(p, r.early, r.giver, kinds[r.giver]));
        auto const number = places_.try_emplace(place, static_cast<std::uint32_t>(places_.size())).first->second;
        given_up_at_[r.early] = restored_from_[r.late] = number;
        late_of_[r.early] = r.late;
        auto const position = static_cast<std::uint32_t>(position_of(p.operators[r.restorer], r.late));
        restored_by_[r.restorer].push_back({position, r.late});
        if (r.has_token) awaited_after_[r.giver].push_back({number, r.late});
    }
    for (auto& restored : restored_by_) algorithm::sort(restored);
    for (auto& awaited : awaited_after_) algorithm::sort(awaited);
    sets_.resize(places_.size());
}

HEDDLE_INLINE restorations::form_codes const& restorations::note(tensor_id early, indexed_tensor const& tensor,
                                                                 form_codes forms) {
    auto& sets = sets_[given_up_at_[early]];
    bool const is_vector = tensor.is_parameter() && tensor.info.shape.size() == 1;
    auto found = algorithm::find(sets, forms);
    if (is_vector || (found == sets.end() && sets.size() >= most_sets && forms.size() > 1)) {
        forms.clear();
        for (tensor_form f : possible_forms(tensor)) forms.push_back(f.code());
        found = algorithm::find(sets, forms);
    }
    return found == sets.end() ? sets.emplace_back(std::move(forms)) : *found;
}

} // namespace heddle

#endif
