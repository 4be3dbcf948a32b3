// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which value of a program a tensor of an exported program holds: a program has values, not storage.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/call_recorder.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::pt2::detail {

/// How a tensor shows elements of another one.
struct tensor_view {
    enum class kind : std::uint8_t {
        whole,    ///< the same elements in the same shape
        reshaped, ///< in another shape, in order
        permuted, ///< with dimensions in another order
        piece,    ///< some places of a dimension
        unknown   ///< such as expanded ones
    };
    std::size_t parent = 0;
    kind how = kind::unknown;
    /// For `permuted`: which dimension of the parent each is.
    std::vector<std::int64_t> order{};
    /// For `piece`: places [first, end) of a dimension, which a single place may lack.
    std::size_t axis = 0;
    extent first = 0, end = 0;
};

/// A tensor of an exported program.
struct traced_tensor {
    std::string name;
    tensor_id id = 0;
    std::size_t storage = 0, version = 0;
    std::optional<tensor_view> view{};
};

/// All tensors of an exported program by number.
///
/// An in-place change makes a new value, which the changed tensor then holds. What it is a view of gets a new value
/// too, with the changed elements in place; other views of that are made anew when they are next used.
class tensor_views {
public:
    explicit tensor_views(call_recorder& recorder) : recorder_(recorder) {}

    [[nodiscard]] traced_tensor const& operator[](std::size_t t) const { return tensors_[t]; }

    /// A tensor with elements of its own.
    std::size_t add(std::string name, tensor_id id) {
        tensors_.push_back({std::move(name), id, versions_.size(), 0, {}});
        versions_.push_back(0);
        return tensors_.size() - 1;
    }
    /// One that shows elements of another.
    std::size_t add_view(std::string name, tensor_id id, tensor_view view) {
        auto const& parent = tensors_[view.parent];
        tensors_.push_back({std::move(name), id, parent.storage, versions_[parent.storage], std::move(view)});
        return tensors_.size() - 1;
    }

    /// The value that a tensor holds now. *Throws* `input_error` where it shares elements with a changed one in a way
    /// that is not known.
    tensor_id current(std::size_t t) {
        // A chain may be as long as the graph, so it is walked without recursion.
        std::vector<std::size_t> stale;
        for (auto at = t; !is_current(at); at = tensors_[at].view->parent) stale.push_back(at);
        for (; !stale.empty(); stale.pop_back()) {
            auto& tensor = tensors_[stale.back()];
            tensor.id = shown(*tensor.view, tensors_[tensor.view->parent].id, tensor);
            tensor.version = versions_[tensor.storage];
        }
        return tensors_[t].id;
    }

    /// From here on `t` holds this value, and so does what shares its elements.
    void write(std::size_t t, tensor_id value) {
        std::vector<std::pair<std::size_t, tensor_id>> held{{t, value}};
        for (auto at = t; tensors_[at].view; at = tensors_[at].view->parent) {
            auto const parent = tensors_[at].view->parent;
            held.emplace_back(parent, put_back(tensors_[at], current(parent), held.back().second));
        }
        auto const version = ++versions_[tensors_[t].storage];
        for (auto const& [tensor, id] : held) {
            tensors_[tensor].id = id;
            tensors_[tensor].version = version;
        }
    }

    /// Adds an operator of one result, named after a tensor.
    tensor_id apply(traced_tensor const& named, std::string target, std::vector<literal> arguments,
                    std::vector<tensor_id> operands, tensor_shape result) {
        auto const type = recorder_.builder.tensor(operands.front()).type;
        std::string name = named.name + ".at_" + std::to_string(applied_++);
        return recorder_
            .add({std::move(name),
                  std::move(target),
                  std::move(arguments),
                  {},
                  std::move(operands),
                  {{std::move(result), type}}})
            .front();
    }

private:
    [[nodiscard]] bool is_current(std::size_t t) const {
        auto const& tensor = tensors_[t];
        return !tensor.view || tensor.version == versions_[tensor.storage];
    }
    [[noreturn]] static void refuse(traced_tensor const& t) {
        throw input_error("tensor '" + t.name + "'",
                          "shares elements with one that is changed in place, in a way that is not known; use "
                          "torch.where, torch.cat or a clone in the model");
    }
    [[nodiscard]] tensor_shape const& shape_of(tensor_id id) const { return recorder_.builder.tensor(id).shape; }
    [[nodiscard]] static literal list_of(std::vector<std::int64_t> const& numbers) {
        literal::list items;
        for (auto n : numbers) items.emplace_back().value = n;
        return {std::move(items)};
    }
    tensor_id in_shape(traced_tensor const& t, tensor_id x, tensor_shape const& dims) {
        if (shape_of(x) == dims) return x;
        return apply(t, "torch.reshape", {{literal::tensor{x}}, list_of(dims)}, {x}, dims);
    }
    tensor_id in_order(traced_tensor const& t, tensor_id x, std::vector<std::int64_t> const& order) {
        tensor_shape dims;
        for (auto d : order) dims.push_back(shape_of(x)[static_cast<std::size_t>(d)]);
        return apply(t, "torch.permute", {{literal::tensor{x}}, list_of(order)}, {x}, dims);
    }
    tensor_id places_of(traced_tensor const& t, tensor_id x, std::size_t axis, extent first, extent end) {
        tensor_shape dims = shape_of(x);
        if (first == 0 && end == dims[axis]) return x;
        literal::list index(axis, literal{literal::slice{}});
        index.emplace_back().value = literal::slice{first, end, {}};
        dims[axis] = end - first;
        return apply(t, "operator.getitem", {{literal::tensor{x}}, {std::move(index)}}, {x}, dims);
    }

    /// What a view shows of this value of its parent.
    tensor_id shown(tensor_view const& view, tensor_id parent, traced_tensor const& t) {
        tensor_shape const dims = shape_of(t.id);
        switch (view.how) {
        case tensor_view::kind::whole: return parent;
        case tensor_view::kind::reshaped: return in_shape(t, parent, dims);
        case tensor_view::kind::permuted: return in_order(t, parent, view.order);
        case tensor_view::kind::piece: return in_shape(t, places_of(t, parent, view.axis, view.first, view.end), dims);
        case tensor_view::kind::unknown: break;
        }
        refuse(t);
    }

    /// The value of the parent with a new one of its view in place.
    tensor_id put_back(traced_tensor const& t, tensor_id parent, tensor_id value) {
        auto const& view = *t.view;
        tensor_shape const dims = shape_of(parent);
        switch (view.how) {
        case tensor_view::kind::whole: return value;
        case tensor_view::kind::reshaped: return in_shape(t, value, dims);
        case tensor_view::kind::permuted: {
            std::vector<std::int64_t> back(view.order.size());
            for (std::size_t d = 0; d < back.size(); ++d)
                back[static_cast<std::size_t>(view.order[d])] = static_cast<std::int64_t>(d);
            return in_order(t, value, back);
        }
        case tensor_view::kind::piece: {
            tensor_shape piece = dims;
            piece[view.axis] = view.end - view.first;
            value = in_shape(t, value, piece);
            std::vector<tensor_id> pieces;
            if (view.first > 0) pieces.push_back(places_of(t, parent, view.axis, 0, view.first));
            pieces.push_back(value);
            if (view.end < dims[view.axis])
                pieces.push_back(places_of(t, parent, view.axis, view.end, dims[view.axis]));
            if (pieces.size() == 1) return value;
            literal::list items;
            for (auto p : pieces) items.emplace_back().value = literal::tensor{p};
            return apply(t, "torch.cat", {{std::move(items)}, {static_cast<std::int64_t>(view.axis)}}, pieces, dims);
        }
        case tensor_view::kind::unknown: break;
        }
        refuse(t);
    }

    call_recorder& recorder_;
    std::vector<traced_tensor> tensors_;
    std::vector<std::size_t> versions_; // of storages: how often each was changed
    std::size_t applied_ = 0;
};

} // namespace heddle::pt2::detail
