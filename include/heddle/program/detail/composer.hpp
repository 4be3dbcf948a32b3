// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What makes one call of several operators of the catalogue has in common.
#pragma once

#include <heddle/program/operators.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Makes operators of the catalogue one after the other, in place of a call.
class composer {
public:
    using adder = std::function<std::vector<tensor_id>(traced_call)>;
    using results = std::optional<std::vector<tensor_id>>;

    composer(program_builder const& builder, traced_call const& call, adder add)
        : builder_(builder), view_(call, builder), add_(std::move(add)) {}

protected:
    using arguments = std::initializer_list<std::pair<char const*, literal>>;

    [[nodiscard]] traced_call const& call() const { return view_.call(); }
    [[nodiscard]] traced_call::result const& result() const { return call().results.front(); }
    [[nodiscard]] tensor_shape const& shape_of(tensor_id t) const { return builder_.tensor(t).shape; }
    [[nodiscard]] element_type type_of(tensor_id t) const { return builder_.tensor(t).type; }
    [[nodiscard]] static literal of(tensor_id t) { return {literal::tensor{t}}; }
    [[nodiscard]] static literal whole(std::int64_t i) { return {i}; }
    [[nodiscard]] static literal list_of(std::vector<std::int64_t> const& numbers) {
        literal::list items;
        for (auto n : numbers) items.emplace_back().value = n;
        return {std::move(items)};
    }
    [[nodiscard]] static results one(tensor_id t) { return std::vector{t}; }
    [[nodiscard]] static tensor_shape broadcast_shape(tensor_shape const& a, tensor_shape const& b) {
        tensor_shape all = a.size() < b.size() ? b : a;
        for (auto const* dims : {&a, &b})
            for (std::size_t d = 1; d <= dims->size(); ++d)
                all[all.size() - d] = std::max(all[all.size() - d], (*dims)[dims->size() - d]);
        return all;
    }

    std::vector<tensor_id> steps(char const* target, arguments given, std::vector<traced_call::result> made) {
        traced_call step;
        step.name = call().name + (count_ == 0 ? "" : "_" + std::to_string(count_));
        ++count_;
        step.target = target;
        for (auto const& [name, value] : given) {
            collect_tensors(value, step.operands);
            step.keywords.emplace(name, value);
        }
        step.results = std::move(made);
        return add_(std::move(step));
    }
    tensor_id step(char const* target, arguments given, tensor_shape dims, element_type type) {
        return steps(target, given, {{std::move(dims), type}}).front();
    }
    /// An operator element by element on one tensor.
    tensor_id on(char const* target, tensor_id x) { return step(target, {{"input", of(x)}}, shape_of(x), type_of(x)); }
    tensor_id in_type(tensor_id x, element_type type) {
        return type_of(x) == type ? x : step("torch.to", {{"input", of(x)}}, shape_of(x), type);
    }
    tensor_id in_shape(tensor_id x, tensor_shape const& dims) {
        return shape_of(x) == dims ? x : step("torch.reshape", {{"input", of(x)}}, dims, type_of(x));
    }
    /// An operator on two tensors, or on one and a number.
    tensor_id both(char const* target, tensor_id x, tensor_id y) {
        return step(target, {{"input", of(x)}, {"other", of(y)}}, broadcast_shape(shape_of(x), shape_of(y)),
                    type_of(x));
    }
    tensor_id with(char const* target, tensor_id x, literal number) {
        return step(target, {{"input", of(x)}, {"other", std::move(number)}}, shape_of(x), type_of(x));
    }
    /// Whole numbers from zero on, in this shape.
    tensor_id counted(tensor_shape const& dims) {
        auto const count = static_cast<extent>(element_count(dims));
        return in_shape(step("torch.arange", {{"end", whole(count)}}, {count}, element_type::int64), dims);
    }
    /// Slices of the first dimension, at places or where a mask is true.
    tensor_id picked(tensor_id x, tensor_id places, extent count) {
        tensor_shape dims = shape_of(x);
        dims[0] = count;
        return step("operator.getitem", {{"input", of(x)}, {"index", of(places)}}, dims, type_of(x));
    }
    /// What a quotient is computed in.
    [[nodiscard]] element_type real_type() const {
        return is_floating(result().type) ? result().type : element_type::float32;
    }
    tensor_id piece(tensor_id x, std::size_t axis, extent first, extent end) {
        tensor_shape dims = shape_of(x);
        if (first == 0 && end == dims[axis]) return x;
        dims[axis] = end - first;
        literal::list index(axis, literal{literal::slice{}});
        index.emplace_back().value = literal::slice{first, end, {}};
        return step("operator.getitem", {{"input", of(x)}, {"index", {std::move(index)}}}, dims, type_of(x));
    }
    tensor_id joined(std::vector<tensor_id> const& pieces, std::size_t axis, tensor_shape dims) {
        if (pieces.size() == 1) return pieces.front();
        literal::list items;
        for (auto p : pieces) items.emplace_back().value = literal::tensor{p};
        return step("torch.cat", {{"tensors", {std::move(items)}}, {"dim", whole(static_cast<std::int64_t>(axis))}},
                    std::move(dims), type_of(pieces.front()));
    }
    tensor_id placed(tensor_id x, double factor, double offset) {
        if (factor != 1) x = step("torch.mul", {{"input", of(x)}, {"other", {factor}}}, shape_of(x), type_of(x));
        if (offset != 0) x = step("torch.add", {{"input", of(x)}, {"other", {offset}}}, shape_of(x), type_of(x));
        return x;
    }

    program_builder const& builder_;
    call_view view_;
    adder add_;

private:
    std::size_t count_ = 0;
};

} // namespace heddle::detail
