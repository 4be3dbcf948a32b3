// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The library's own program and its builder.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/index_rule.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// Numbers by name that a kernel needs and neither rule nor shapes tell: strides, probabilities, constants.
using operator_attributes = std::map<std::string, std::vector<double>>;

/// One operator of a program.
struct operator_info {
    std::string name;
    /// What it computes, for example `linear` or `relu`.
    std::string kind;
    index_rule rule;
    operator_work work;
    std::vector<tensor_id> operands;
    std::vector<tensor_id> results;
    operator_attributes attributes{};
};

namespace detail {
struct program_copier;
}

/// A single-device training program: tensors and operators in topological order, and one scalar loss. It models
/// `single_device_program`, is made by `program_builder`, and is immutable.
class program {
public:
    [[nodiscard]] std::size_t tensor_count() const { return tensors_.size(); }
    [[nodiscard]] std::size_t operator_count() const { return operators_.size(); }
    [[nodiscard]] tensor_info const& tensor(tensor_id t) const { return tensors_[t]; }
    [[nodiscard]] std::string const& name(operator_id o) const { return operators_[o].name; }
    [[nodiscard]] std::string const& kind(operator_id o) const { return operators_[o].kind; }
    [[nodiscard]] std::span<tensor_id const> operands(operator_id o) const { return operators_[o].operands; }
    [[nodiscard]] std::span<tensor_id const> results(operator_id o) const { return operators_[o].results; }
    [[nodiscard]] index_rule const& rule(operator_id o) const { return operators_[o].rule; }
    [[nodiscard]] operator_work const& work(operator_id o) const { return operators_[o].work; }
    [[nodiscard]] operator_attributes const& attributes(operator_id o) const { return operators_[o].attributes; }
    [[nodiscard]] tensor_id loss() const { return loss_; }

    /// Returns the same operators on tensors of other sizes, from the extents of every operator's indices. Work is
    /// taken to grow with the points of an operator's loop nest. *Throws* `input_error` if rules disagree about the
    /// shape of a tensor.
    [[nodiscard]] program resized(std::vector<std::vector<extent>> const& extents) const;

    /// Returns the same operators on floating-point tensors of another type. What operators save beside tensors grows
    /// with the elements of their first result.
    [[nodiscard]] program retyped(element_type type) const;

    /// Returns the program in which these users of an input have it whole in every part of the batch; see
    /// `tensor_info::whole_of`. If there are others it becomes two, of which the last tensor, `x.whole`, is for these.
    /// *Precondition:* `t` is divided with the batch and not differentiated.
    [[nodiscard]] program with_whole_input(tensor_id t, std::set<operator_id> const& users) const;
    /// Returns the program as it was before.
    [[nodiscard]] program without_whole_inputs() const;
    /// Returns the source whose data a source has: its own, or those of the input of the same shape that it is the
    /// whole of. A part of a program may lack that one; then it is the source itself.
    [[nodiscard]] tensor_id data_of(tensor_id source) const;

private:
    friend class program_builder;
    friend struct detail::program_copier;
    std::vector<tensor_info> tensors_;
    std::vector<operator_info> operators_;
    tensor_id loss_ = 0;
};

/// What the builder cannot derive from a rule and shapes.
struct operator_options {
    std::string name{};
    operator_class category = operator_class::other;
    /// The extents of indices by name.
    index_extents extents{};
    /// The shapes of the results, if the rule leaves an extent open.
    std::vector<tensor_shape> results{};
    std::optional<element_type> result_type{};
    /// The type of each result, if they differ.
    std::vector<element_type> result_types{};
    /// The work on whole tensors. By default it is two operations per point of the loop nest for a product, and one
    /// otherwise.
    std::optional<flops> forward{};
    /// If absent, it is the forward work; for a product, that once per differentiated factor.
    std::optional<flops> backward{};
    bytes extra_saved{};
    /// If absent, these are the factors of every product whose other factors are differentiated.
    std::optional<std::vector<std::uint8_t>> saved_operands{};
    std::vector<std::uint8_t> saved_results{};
    std::vector<std::uint8_t> sparse_operands{};
    bool is_view = false;
    /// See `operator_work`.
    bool stops_gradient = false;
    operator_attributes attributes{};
};

/// Returns what makes a builder apply an operator of a program again, to tensors like its own.
[[nodiscard]] operator_options options_of(program const& p, operator_id o);

/// Builds a program operator by operator, in order of execution.
///
/// *Throws* `input_error` that names the operator or tensor as soon as something contradicts the rule.
class program_builder {
public:
    tensor_id input(std::string name, tensor_shape dims, element_type type = element_type::float32,
                    bool is_differentiated = false) {
        return add_tensor({std::move(name), std::move(dims), type, tensor_role::input, is_differentiated});
    }
    tensor_id parameter(std::string name, tensor_shape dims, element_type type = element_type::float32,
                        bool trainable = true) {
        return add_tensor({std::move(name), std::move(dims), type, tensor_role::parameter, trainable});
    }
    tensor_id buffer(std::string name, tensor_shape dims, element_type type = element_type::float32) {
        return add_tensor({std::move(name), std::move(dims), type, tensor_role::buffer, false});
    }
    /// Adds a source that is described already, such as one of another program. *Precondition:* it is no value.
    tensor_id source(tensor_info info) { return add_tensor(std::move(info)); }

    /// Adds an operator of one result by a rule in the index-rule language.
    tensor_id apply(std::string_view kind, std::string_view rule, std::vector<tensor_id> operands,
                    operator_options options = {}) {
        return apply_multi(kind, parse_index_rule(rule), std::move(operands), std::move(options)).front();
    }

    /// Adds an operator by its rule and returns its results.
    std::vector<tensor_id> apply_multi(std::string_view kind, index_rule rule, std::vector<tensor_id> operands,
                                       operator_options options = {});

    /// Makes one operator of several of the same operands, each with one result: it has their results in this order,
    /// and is where the first of them was. The others have nothing left to do, so `finish` leaves them out.
    void merge(std::vector<std::size_t> const& which, std::string_view kind, index_rule rule, operator_options options);

    [[nodiscard]] tensor_info const& tensor(tensor_id t) const { return program_.tensors_.at(t); }
    /// Returns the operators added so far.
    [[nodiscard]] std::span<operator_info const> operators() const { return program_.operators_; }
    /// Tells whether there is a derivative with respect to a tensor: it is a trained parameter, or a value that depends
    /// on one.
    [[nodiscard]] bool is_differentiable(tensor_id t) const { return differentiable_.at(t); }

    /// Returns the program with this loss. Operators on which the loss does not depend are left out.
    /// *Throws* `input_error` if the loss is not a scalar that an operator computes and that depends on a trained
    /// parameter.
    [[nodiscard]] program finish(tensor_id loss) const&;
    /// As above, but without a copy; the builder must not be used afterwards.
    [[nodiscard]] program finish(tensor_id loss) &&;

private:
    void check_loss(tensor_id loss) const;
    tensor_id add_tensor(tensor_info info);

    [[nodiscard]] element_type operand_type(std::vector<tensor_id> const& operands) const;

    [[nodiscard]] operator_work derive_work(operator_info const& op, operator_options const& options) const;

    /// Works in place.
    [[nodiscard]] static program without_dead_code(program p, tensor_id loss);
    template <class T>
    static void keep(std::vector<T>& items, std::vector<bool> const& wanted) {
        std::size_t i = 0;
        std::erase_if(items, [&](T const&) { return !wanted[i++]; });
    }

    program program_;
    std::vector<bool> differentiable_;
};

static_assert(runnable_program<program>);

namespace detail {

/// Tells of each operator whether a tensor depends on it.
[[nodiscard]] std::vector<bool> operators_behind(std::span<operator_info const> operators, tensor_id t);

struct program_copier {
    template <single_device_program Program>
    static program copy(Program const& p) {
        using access = program_access<Program>;
        program own;
        auto const tensors = static_cast<tensor_id>(access::tensor_count(p));
        auto const operators = static_cast<operator_id>(access::operator_count(p));
        for (tensor_id t = 0; t < tensors; ++t) own.tensors_.push_back(access::tensor(p, t));
        for (operator_id o = 0; o < operators; ++o) {
            auto& op = own.operators_.emplace_back();
            op.name = access::name(p, o);
            op.rule = access::rule(p, o);
            op.work = access::work(p, o);
            for (tensor_id const t : access::operands(p, o)) op.operands.push_back(t);
            for (tensor_id const t : access::results(p, o)) op.results.push_back(t);
            if constexpr (tells_kinds<Program>) op.kind = access::kind(p, o);
            if constexpr (requires {
                              { access::attributes(p, o) } -> std::convertible_to<operator_attributes>;
                          })
                op.attributes = access::attributes(p, o);
        }
        own.loss_ = access::loss(p);
        return own;
    }
};

} // namespace detail

/// Copies a program of another type into the library's own, numbered alike, for what makes a program of another size,
/// or runs it.
/// *Precondition:* its axioms hold, as `index_program` checks. *Complexity.* That of a copy.
template <single_device_program Program>
    requires(!std::same_as<Program, program>)
[[nodiscard]] program program_of(Program const& p) {
    return detail::program_copier::copy(p);
}
[[nodiscard]] inline program const& program_of(program const& p) { return p; }

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::vector<bool> operators_behind(std::span<operator_info const> operators, tensor_id t) {
    std::vector<bool> needed(t + std::size_t{1}), result(operators.size()); // what comes after `t` is not needed
    needed[t] = true;
    for (std::size_t n = operators.size(); n-- > 0;) {
        result[n] = algorithm::any_of(operators[n].results, [&](tensor_id r) { return r <= t && needed[r]; });
        if (!result[n]) continue;
        for (auto operand : operators[n].operands) needed[operand] = true;
    }
    return result;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program program::resized(std::vector<std::vector<extent>> const& extents) const {
    program result = *this;
    std::vector<bool> known(tensors_.size());
    for (operator_id o = 0; o < operators_.size(); ++o) {
        auto& op = result.operators_[o];
        double growth = 1;
        for (std::size_t i = 0; i < op.rule.indices.size(); ++i) {
            growth *= static_cast<double>(extents[o][i]) / static_cast<double>(op.rule.indices[i].extent);
            op.rule.indices[i].extent = extents[o][i];
        }
        op.work.forward *= growth;
        op.work.backward *= growth;
        op.work.extra_saved *= growth;
        auto const resize = [&](tensor_id t, indexed_access const& access) {
            tensor_shape dims;
            for (auto const& dimension : access) {
                extent& size = dims.emplace_back(1);
                for (auto i : dimension) size *= op.rule.indices[i].extent;
            }
            if (known[t] && result.tensors_[t].shape != dims)
                throw input_error("operator '" + op.name + "'", "its rule gives tensor '" + tensors_[t].name +
                                                                    "' another shape than the ones before");
            known[t] = true;
            result.tensors_[t].shape = std::move(dims);
        };
        for (std::size_t k = 0; k < op.operands.size(); ++k) resize(op.operands[k], op.rule.operands[k]);
        for (std::size_t k = 0; k < op.results.size(); ++k) resize(op.results[k], op.rule.results[k]);
    }
    return result;
}

HEDDLE_INLINE program program::retyped(element_type type) const {
    program result = *this;
    for (auto& op : result.operators_) {
        auto const before = tensors_[op.results.front()].type;
        if (is_floating(before)) op.work.extra_saved *= element_size(type) / static_cast<double>(element_size(before));
    }
    for (auto& t : result.tensors_)
        if (is_floating(t.type)) t.type = type;
    return result;
}

HEDDLE_INLINE program program::with_whole_input(tensor_id t, std::set<operator_id> const& users) const {
    program result = *this;
    auto whole = t;
    auto const is_other_user = [&](operator_id o) {
        return !users.contains(o) && algorithm::find(operators_[o].operands, t) != operators_[o].operands.end();
    };
    if (algorithm::any_of(std::views::iota(operator_id{0}, static_cast<operator_id>(operator_count())),
                          is_other_user)) {
        whole = static_cast<tensor_id>(tensor_count());
        result.tensors_.push_back(tensors_[t]);
        result.tensors_.back().name += ".whole";
    }
    result.tensors_[whole].whole_of = tensors_[t].name;
    for (auto const o : users)
        for (auto& operand : result.operators_[o].operands)
            if (operand == t) operand = whole;
    return result;
}

HEDDLE_INLINE program program::without_whole_inputs() const {
    program result = *this;
    for (auto last = static_cast<tensor_id>(tensor_count() - 1); result.data_of(last) != last; --last) {
        for (auto& op : result.operators_) std::ranges::replace(op.operands, last, result.data_of(last));
        result.tensors_.pop_back();
    }
    for (auto& t : result.tensors_) t.whole_of.clear();
    return result;
}

HEDDLE_INLINE tensor_id program::data_of(tensor_id source) const {
    auto const& whole = tensors_[source];
    if (whole.whole_of.empty() || whole.whole_of == whole.name) return source;
    auto const data = algorithm::find_if(tensors_, [&](tensor_info const& t) {
        return t.role == tensor_role::input && t.name == whole.whole_of && t.shape == whole.shape;
    });
    return data == tensors_.end() ? source : static_cast<tensor_id>(data - tensors_.begin());
}

HEDDLE_INLINE std::vector<tensor_id> program_builder::apply_multi(std::string_view kind, index_rule rule,
                                                                  std::vector<tensor_id> operands,
                                                                  operator_options options) {
    operator_info op;
    op.kind = kind;
    op.name =
        options.name.empty() ? std::string(kind) + "_" + std::to_string(program_.operators_.size()) : options.name;
    std::vector<tensor_shape> shapes;
    bool differentiated = false;
    for (auto t : operands) {
        if (t >= program_.tensors_.size())
            throw input_error(op.name, "operand " + std::to_string(t) + " is no tensor of this program");
        shapes.push_back(program_.tensors_[t].shape);
        differentiated |= differentiable_[t];
    }
    std::vector<tensor_shape> results;
    try {
        results = bind_extents(rule, shapes, options.results, options.extents);
    } catch (input_error const& e) { throw input_error("operator '" + op.name + "'", e.what()); }
    element_type const type = options.result_type ? *options.result_type
                              : operands.empty()  ? element_type::float32
                                                  : operand_type(operands);
    op.operands = std::move(operands);
    op.rule = std::move(rule);
    op.work = derive_work(op, options);
    op.attributes = std::move(options.attributes);
    for (std::size_t r = 0; r < results.size(); ++r) {
        auto const result_type = r < options.result_types.size() ? options.result_types[r] : type;
        op.results.push_back(add_tensor({results.size() == 1 ? op.name : op.name + "." + std::to_string(r),
                                         std::move(results[r]), result_type, tensor_role::value, false}));
        differentiable_.back() = differentiated && is_floating(result_type) && !options.stops_gradient;
    }
    program_.operators_.push_back(op);
    return std::move(op.results);
}

HEDDLE_INLINE void program_builder::merge(std::vector<std::size_t> const& which, std::string_view kind, index_rule rule,
                                          operator_options options) {
    auto const first = *std::min_element(which.begin(), which.end());
    operator_info op = program_.operators_[first];
    op.kind = kind;
    op.rule = std::move(rule);
    op.attributes = std::move(options.attributes);
    op.results.clear();
    std::vector<tensor_shape> operands, results;
    for (auto t : op.operands) operands.push_back(tensor(t).shape);
    for (auto n : which) {
        auto& part = program_.operators_[n];
        op.results.push_back(part.results.front());
        results.push_back(tensor(op.results.back()).shape);
        part.results.clear();
    }
    static_cast<void>(bind_extents(op.rule, operands, results, options.extents));
    op.work = derive_work(op, options);
    program_.operators_[first] = std::move(op);
}

HEDDLE_INLINE operator_options options_of(program const& p, operator_id o) {
    auto const& work = p.work(o);
    operator_options options{.name = p.name(o),
                             .category = work.category,
                             .forward = work.forward,
                             .backward = work.backward,
                             .extra_saved = work.extra_saved,
                             .saved_operands = work.saved_operands,
                             .saved_results = work.saved_results,
                             .sparse_operands = work.sparse_operands,
                             .is_view = work.is_view,
                             .stops_gradient = work.stops_gradient,
                             .attributes = p.attributes(o)};
    for (auto t : p.results(o)) {
        options.results.push_back(p.tensor(t).shape);
        options.result_types.push_back(p.tensor(t).type);
    }
    return options;
}

HEDDLE_INLINE program program_builder::finish(tensor_id loss) const& {
    check_loss(loss);
    return without_dead_code(program_, loss);
}

HEDDLE_INLINE program program_builder::finish(tensor_id loss) && {
    check_loss(loss);
    return without_dead_code(std::move(program_), loss);
}

HEDDLE_INLINE void program_builder::check_loss(tensor_id loss) const {
    auto const& info = program_.tensors_.at(loss);
    if (info.elements() != 1)
        throw input_error("loss '" + info.name + "'",
                          "has " + std::to_string(info.elements()) + " elements, expected one");
    if (info.role != tensor_role::value)
        throw input_error("loss '" + info.name + "'", "is an input or parameter, expected the result of an operator");
    if (!differentiable_[loss]) throw input_error("loss '" + info.name + "'", "depends on no trained parameter");
}

HEDDLE_INLINE tensor_id program_builder::add_tensor(tensor_info info) {
    for (extent e : info.shape)
        if (e < 1)
            throw input_error("tensor '" + info.name + "'", "extent " + std::to_string(e) + ", expected at least 1");
    if (info.trainable && !is_floating(info.type))
        throw input_error("parameter '" + info.name + "'", "is trained but not of a floating-point type");
    if (!info.whole_of.empty() && (info.role != tensor_role::input || info.trainable))
        throw input_error("tensor '" + info.name + "'",
                          "is whole in every part of the batch, expected so of inputs that are not differentiated");
    differentiable_.push_back(info.trainable);
    program_.tensors_.push_back(std::move(info));
    return static_cast<tensor_id>(program_.tensors_.size() - 1);
}

HEDDLE_INLINE element_type program_builder::operand_type(std::vector<tensor_id> const& operands) const {
    for (auto t : operands)
        if (is_floating(program_.tensors_[t].type)) return program_.tensors_[t].type;
    return program_.tensors_[operands.front()].type;
}

HEDDLE_INLINE operator_work program_builder::derive_work(operator_info const& op,
                                                         operator_options const& options) const {
    operator_work work;
    work.category = options.category;
    work.is_view = options.is_view;
    work.stops_gradient = options.stops_gradient;
    work.extra_saved = options.extra_saved;
    work.sparse_operands = options.sparse_operands;
    work.saved_results = options.saved_results;
    double points = 1;
    for (auto const& index : op.rule.indices) {
        points *= static_cast<double>(index.extent);
        for (auto piece : index.pieces) points /= static_cast<double>(op.rule.indices[piece].extent);
    }
    auto const is_differentiable = [&](std::uint8_t k) { return static_cast<bool>(differentiable_[op.operands[k]]); };
    bool product = false;
    std::ptrdiff_t derivatives = 0;
    std::vector<std::uint8_t> factors;
    for (auto const& term : op.rule.terms) {
        if (term.size() < 2) continue;
        product = true;
        derivatives += algorithm::count_if(term, is_differentiable);
        for (auto k : term)
            if (algorithm::any_of(term, [&](auto other) { return other != k && is_differentiable(other); }))
                factors.push_back(k);
    }
    algorithm::sort(factors);
    bool const differentiated = !options.stops_gradient && algorithm::any_of(op.operands, [&](tensor_id t) {
        return static_cast<bool>(differentiable_[t]);
    });
    work.forward = options.is_view ? flops(0) : options.forward.value_or(flops((product ? 2 : 1) * points));
    work.backward = !differentiated || options.is_view ? flops(0)
                    : options.backward                 ? *options.backward
                    : product                          ? work.forward * static_cast<double>(derivatives)
                                                       : work.forward;
    if (differentiated) work.saved_operands = options.saved_operands.value_or(factors);
    else {
        work.saved_results.clear();
        work.extra_saved = bytes(0);
    }
    return work;
}

HEDDLE_INLINE program program_builder::without_dead_code(program p, tensor_id loss) {
    auto const kept = detail::operators_behind(p.operators_, loss);
    std::vector<bool> used(p.tensors_.size());
    used[loss] = true;
    for (std::size_t o = 0; o < p.operators_.size(); ++o)
        for (auto const* tensors : {&p.operators_[o].operands, &p.operators_[o].results})
            for (auto t : *tensors)
                if (kept[o]) used[t] = true;
    std::vector<tensor_id> number(used.size());
    tensor_id tensors = 0;
    for (tensor_id t = 0; t < used.size(); ++t)
        if (used[t]) number[t] = tensors++;
    keep(p.tensors_, used);
    keep(p.operators_, kept);
    for (auto& op : p.operators_) {
        for (auto& t : op.operands) t = number[t];
        for (auto& t : op.results) t = number[t];
    }
    p.loss_ = number[loss];
    return p;
}

} // namespace heddle

#endif
