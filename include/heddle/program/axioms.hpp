// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the concept `single_device_program` asks for beyond its syntax, as checks to run on a model of it.
///
/// These are for the tests of whoever plugs in a representation: `CHECK(broken_axioms(p).empty())` works in any
/// framework.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Collects one sentence for each axiom that a program breaks at a place.
template <class Program>
class axiom_check {
public:
    explicit axiom_check(Program const& p)
        : program_(p), tensors_(static_cast<std::size_t>(access::tensor_count(p))),
          operators_(static_cast<std::size_t>(access::operator_count(p))), made_(tensors_) {}

    std::vector<std::string> run() {
        for (tensor_id t = 0; t < tensors_; ++t) check_tensor(t);
        for (operator_id o = 0; o < operators_; ++o) check_operator(o);
        for (tensor_id t = 0; t < tensors_; ++t)
            if (info(t).role == tensor_role::value && made_[t] == 0)
                add(tensor_text(t), "has the role value, but no operator computes it");
        check_loss();
        return std::move(broken_);
    }

private:
    using access = program_access<Program>;

    void add(std::string const& place, std::string const& problem) { broken_.push_back(place + " " + problem); }

    [[nodiscard]] tensor_info info(tensor_id t) const { return access::tensor(program_, t); }
    [[nodiscard]] std::string tensor_text(tensor_id t) const {
        return "tensor " + std::to_string(t) + " '" + info(t).name + "'";
    }
    [[nodiscard]] std::string operator_text(operator_id o) const {
        return "operator " + std::to_string(o) + " '" + std::string(access::name(program_, o)) + "'";
    }
    [[nodiscard]] static std::vector<tensor_id> listed(auto&& range) {
        std::vector<tensor_id> list;
        for (tensor_id t : range) list.push_back(t);
        return list;
    }

    void check_tensor(tensor_id t) {
        auto const tensor = info(t);
        for (extent e : tensor.shape)
            if (e < 1) add(tensor_text(t), "has the extent " + std::to_string(e) + ", expected at least 1");
        if (tensor.trainable && tensor.role != tensor_role::parameter && tensor.role != tensor_role::input)
            add(tensor_text(t), "is trainable, but no parameter and no input");
        if (tensor.trainable && !is_floating(tensor.type))
            add(tensor_text(t), "is trainable, but not of a floating-point type");
        if (!tensor.whole_of.empty() && (tensor.role != tensor_role::input || tensor.trainable))
            add(tensor_text(t), "is whole in every part of the batch, but no input, or trainable");
    }

    void check_operator(operator_id o) {
        auto const operands = listed(access::operands(program_, o)), results = listed(access::results(program_, o));
        if (operands != listed(access::operands(program_, o)) || results != listed(access::results(program_, o)))
            add(operator_text(o), "has other operands or results when it is asked again");
        if (results.empty()) add(operator_text(o), "has no result");
        for (tensor_id t : operands) {
            if (t >= tensors_)
                add(operator_text(o), "uses tensor " + std::to_string(t) + " of " + std::to_string(tensors_));
            else if (info(t).role == tensor_role::value && made_[t] == 0)
                add(operator_text(o), "uses " + tensor_text(t) + " before it is computed");
        }
        for (tensor_id t : results) {
            if (t >= tensors_)
                add(operator_text(o), "computes tensor " + std::to_string(t) + " of " + std::to_string(tensors_));
            else if (info(t).role != tensor_role::value)
                add(operator_text(o), "computes " + tensor_text(t) + ", whose role is not value");
            else if (++made_[t] > 1) add(operator_text(o), "computes " + tensor_text(t) + " a second time");
        }
        index_rule const& rule = access::rule(program_, o);
        check_side(o, rule, operands, rule.operands, "operands");
        check_side(o, rule, results, rule.results, "results");
        check_indices(o, rule);
        check_terms(o, rule);
        if (rule.exchange) check_exchange(o, rule);
        check_work(o, access::work(program_, o), operands.size(), results.size());
    }

    void check_side(operator_id o, index_rule const& rule, std::vector<tensor_id> const& tensors,
                    std::vector<indexed_access> const& accesses, char const* what) {
        if (tensors.size() != accesses.size())
            return add(operator_text(o), "has " + std::to_string(tensors.size()) + " " + what + ", its rule " +
                                             std::to_string(accesses.size()));
        for (std::size_t k = 0; k < tensors.size(); ++k)
            if (tensors[k] < tensors_ && !fits(rule, accesses[k], info(tensors[k]).shape))
                add(operator_text(o), "has a rule that does not fit " + tensor_text(tensors[k]));
    }

    void check_indices(operator_id o, index_rule const& rule) {
        std::vector<bool> in_result(rule.indices.size());
        for (auto const& result : rule.results)
            for (auto const& dimension : result)
                for (auto i : dimension)
                    if (i < in_result.size()) in_result[i] = true;
        for (std::size_t i = 0; i < rule.indices.size(); ++i) {
            auto const& index = rule.indices[i];
            if (index.extent < 1) add(operator_text(o), "has no extent for the index '" + index.name + "' of its rule");
            if (index.kind == index_kind::reduction && in_result[i])
                add(operator_text(o), "reduces over the index '" + index.name + "', which a result has");
            if (index.kind == index_kind::parallel && !in_result[i])
                add(operator_text(o), "is parallel in the index '" + index.name + "', which no result has");
        }
    }

    void check_exchange(operator_id o, index_rule const& rule) {
        auto const& [rows, places, sent, returned] = *rule.exchange;
        auto const count = rule.indices.size();
        bool known = rows < count && places < count;
        for (auto const* side : {&sent, &returned})
            for (auto const& dimension : *side)
                for (auto i : dimension) known = known && i < count;
        if (!known) return add(operator_text(o), "exchanges rows of an index that is not there");
        if (rule.indices[rows].kind != index_kind::parallel || rule.indices[places].kind != index_kind::reduction)
            add(operator_text(o), "exchanges rows '" + rule.indices[rows].name + "' with '" +
                                      rule.indices[places].name +
                                      "', expected an index that all results have, and one that is summed over");
    }

    void check_terms(operator_id o, index_rule const& rule) {
        std::vector<bool> seen(rule.operands.size());
        for (auto const& term : rule.terms) {
            for (auto k : term) {
                if (k >= seen.size())
                    add(operator_text(o),
                        "has a term of operand " + std::to_string(k) + ", there are " + std::to_string(seen.size()));
                else if (seen[k]) add(operator_text(o), "has operand " + std::to_string(k) + " in its terms twice");
                else seen[k] = true;
            }
        }
        auto const empty = algorithm::count_if(rule.terms, [](auto const& term) { return term.empty(); });
        if (empty > 0 && algorithm::find(seen, false) == seen.end())
            add(operator_text(o), "has a term without an operand");
        if (empty > 1)
            add(operator_text(o), "has " + std::to_string(empty) + " terms without an operand, expected one at most");
    }

    void check_work(operator_id o, operator_work const& work, std::size_t operands, std::size_t results) {
        for (double number : {work.forward.value, work.backward.value, work.extra_saved.value})
            if (!(number >= 0) || !std::isfinite(number))
                add(operator_text(o), "has work of " + std::to_string(number) + ", expected a finite number from 0 on");
        auto const check = [&](std::vector<std::uint8_t> const& numbers, std::size_t count, char const* what) {
            for (auto k : numbers)
                if (k >= count)
                    add(operator_text(o), std::string("has work that names ") + what + " " + std::to_string(k) +
                                              ", there are " + std::to_string(count));
        };
        check(work.saved_operands, operands, "operand");
        check(work.sparse_operands, operands, "operand");
        check(work.saved_results, results, "result");
    }

    void check_loss() {
        tensor_id const loss = access::loss(program_);
        if (loss >= tensors_)
            return add("the loss", "is tensor " + std::to_string(loss) + " of " + std::to_string(tensors_));
        if (info(loss).role != tensor_role::value)
            add("the loss", "is " + tensor_text(loss) + ", which no operator computes");
        if (info(loss).elements() != 1)
            add("the loss", "has " + std::to_string(info(loss).elements()) + " elements, expected one");
        if (broken_.empty() && !index_program(program_).tensors[loss].has_cotangent)
            add("the loss", "depends on no trained parameter");
    }

    Program const& program_;
    std::size_t tensors_, operators_;
    std::vector<int> made_;
    std::vector<std::string> broken_;
};

} // namespace detail

/// Returns a sentence for each axiom of `single_device_program` that this program breaks, with the place; an empty list
/// if all hold.
///
/// The checks cannot see whether a rule describes what its operator computes; `prove` runs plans for that.
/// *Complexity.* Linear in the program.
template <single_device_program Program>
[[nodiscard]] std::vector<std::string> broken_axioms(Program const& p) {
    return detail::axiom_check<Program>(p).run();
}

} // namespace heddle
