// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The table of libtorch's kernels, and what several of them need: places, random draws, sums of products,
/// statistics.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/kernel_table.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/libtorch/detail/contraction.hpp>
#include <heddle/libtorch/tensor.hpp>
#include <heddle/search/mix_bits.hpp>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
#include <ATen/cuda/jiterator.h>
#endif
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::libtorch {

using tensor_list = std::vector<at::Tensor>;
using gradient_list = std::vector<std::optional<at::Tensor>>;

/// A call with what joins it to the same call on other ranks.
struct joined_call : kernel_call {
    /// Returns what all ranks together make of each rank's numbers, one per row; see the `combine` of a kernel's call.
    std::function<at::Tensor(std::size_t which, reduction how, at::Tensor const& rows)> combine_rows{};
};

/// Computes the results' parts of a call from the operands' parts; backward, the operands' cotangents from operands,
/// results and the results' cotangents, all of which are there. An operator without a backward function is
/// differentiated by autograd.
struct operator_kernel {
    std::function<tensor_list(joined_call const&, tensor_list const&)> forward;
    std::function<gradient_list(joined_call const&, tensor_list const&, tensor_list const&, tensor_list const&)>
        backward{};
    /// Tells that on a GPU operands of 16 bits are taken as they are, as libtorch computes in float and rounds once.
    bool takes_16_bits = false;
};

namespace detail {

using kernel_table = std::map<std::string, operator_kernel, std::less<>>;
using heddle::detail::axis_of;

/// Makes a kernel of a function that returns the only result.
template <class Function>
[[nodiscard]] operator_kernel one_result(Function f) {
    return {[f](joined_call const& call, tensor_list const& x) { return tensor_list{f(call, x)}; }};
}
/// Makes a kernel of a function of one tensor.
template <class Function>
[[nodiscard]] operator_kernel function_of_one(Function f) {
    return one_result([f](kernel_call const&, tensor_list const& x) { return f(x[0]); });
}

/// Differentiates a kernel by autograd. The derivative is zero in an operand that the results do not depend on, such as
/// a place.
[[nodiscard]] inline gradient_list differentiate(operator_kernel const& kernel, joined_call const& call,
                                                 tensor_list const& x, tensor_list const& g) {
    c10::AutoGradMode const records(true);
    tensor_list leaves, outputs, cotangents;
    for (auto const& t : x) leaves.push_back(t.detach().requires_grad_(true));
    auto const results = kernel.forward(call, leaves);
    for (std::size_t r = 0; r < results.size(); ++r)
        if (results[r].requires_grad()) {
            outputs.push_back(results[r]);
            cotangents.push_back(g[r]);
        }
    tensor_list derivatives(x.size());
    if (!outputs.empty()) derivatives = torch::autograd::grad(outputs, leaves, cotangents, {}, false, true);
    gradient_list result;
    for (std::size_t k = 0; k < x.size(); ++k)
        result.emplace_back(derivatives[k].defined() ? derivatives[k] : at::zeros_like(x[k]));
    return result;
}

/// Returns `value` with the derivative of `surrogate`.
[[nodiscard]] inline at::Tensor with_derivative(at::Tensor const& value, at::Tensor const& surrogate) {
    return surrogate.requires_grad() ? value.detach() + (surrogate - surrogate.detach()) : value;
}

// ---- places

[[nodiscard]] inline at::Tensor whole_number(at::Tensor const& x) { return x.to(at::kLong); }

/// Returns the positions that are held of a dimension.
[[nodiscard]] inline at::Tensor positions(held_positions const& held, extent size, at::Device device) {
    auto const options = at::TensorOptions(at::kLong).device(device);
    if (!held) return at::arange(size, options);
    if (held->empty()) return at::empty({0}, options);
    if (held->back() - held->front() + 1 == static_cast<extent>(held->size()))
        return at::arange(held->front(), held->back() + 1, options);
    return at::tensor(*held, at::kLong).to(device);
}

/// Returns the number in the whole tensor of every element of a part.
[[nodiscard]] inline at::Tensor whole_numbers(tensor_shape const& whole, held_part const& part, at::Device device) {
    auto const options = at::TensorOptions(at::kLong).device(device);
    if (algorithm::none_of(part, [](auto const& held) { return held.has_value(); }))
        return at::arange(heddle::count_elements(whole), options).reshape(whole);
    at::Tensor numbers = at::zeros({}, options);
    for (std::size_t d = 0; d < whole.size(); ++d)
        numbers = numbers.unsqueeze(-1) * whole[d] + positions(part[d], whole[d], device);
    return numbers;
}
[[nodiscard]] inline at::Tensor result_numbers(kernel_call const& call, at::Device device) {
    return whole_numbers(call.whole_shape(call.rule->results[0]), call.results[0], device);
}

/// Finds numbers among the positions that are held of a dimension.
struct found_places {
    /// The number of each position among those that are held; any that exists for one that is not.
    at::Tensor place;
    /// Is undefined if all are held.
    at::Tensor is_held;
    /// Nothing is held.
    bool is_empty = false;

    found_places(held_positions const& held, at::Tensor numbers) : place(std::move(numbers)) {
        if (!held) return;
        is_empty = held->empty();
        if (is_empty) return;
        auto const all = positions(held, 0, place.device());
        auto const found = at::searchsorted(all, place.contiguous()).clamp_max(all.size(0) - 1);
        is_held = all.index({found}) == place;
        place = found;
    }
    /// Returns `x` where the number is held, and zero elsewhere; `x` may have more dimensions.
    [[nodiscard]] at::Tensor held_of(at::Tensor const& x) const {
        if (!is_held.defined()) return x;
        auto mask = is_held;
        while (mask.dim() < x.dim()) mask = mask.unsqueeze(-1);
        return x.masked_fill(mask.logical_not(), 0);
    }
};

/// Returns places of a dimension, of which negative ones are counted from the end.
[[nodiscard]] inline at::Tensor places_of(at::Tensor const& x, extent size) {
    auto const places = whole_number(x);
    return at::where(places < 0, places + size, places);
}

/// Returns a tensor with the dimensions [first, first + count) as one; there may be none.
[[nodiscard]] inline at::Tensor flattened(at::Tensor const& x, std::size_t first, std::size_t count) {
    auto const dims = x.sizes();
    tensor_shape shape(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(first));
    extent size = 1;
    for (std::size_t d = first; d < first + count; ++d) size *= dims[d];
    shape.push_back(size);
    shape.insert(shape.end(), dims.begin() + static_cast<std::ptrdiff_t>(first + count), dims.end());
    return x.reshape(shape);
}

/// Returns operands in shapes that broadcast: each operand's dimensions are the last of the result or, with the
/// attribute `aligned_at`, those from there on.
[[nodiscard]] inline tensor_list aligned(kernel_call const& call, tensor_list x) {
    if (!call.has("aligned_at")) return x;
    auto const rank = static_cast<extent>(call.rule->results[0].size());
    for (std::size_t k = 1; k < x.size(); ++k)
        for (extent d = static_cast<extent>(call.number("aligned_at", 0)) + x[k].dim(); d < rank; ++d)
            x[k] = x[k].unsqueeze(-1);
    return x;
}

/// *Throws* `input_error` if what is computed is recorded.
inline void refuse_recording(kernel_call const& call, std::string const& problem) {
    if (thread_records()) call.fail(problem + "; it cannot be recorded as a graph");
}

// ---- random draws, by integers: a number depends on its key alone, see heddle/execute/random.hpp

#ifdef HEDDLE_LIBTORCH_HAS_CUDA
/// Runs a kernel that may call `unit_bits(number, state)`, which does what `unit_bits` below does. libtorch compiles it
/// when it is first called, and computes in the type that all tensors can be converted to.
[[nodiscard]] inline at::Tensor drawn_on_cuda(std::string const& code, char const* name,
                                              c10::SmallVector<at::Tensor> const& x,
                                              c10::SmallVector<at::Scalar> const& numbers) {
    static std::string const bits_of_number = R"(
        typedef unsigned long long bits;
        bits mixed(bits x) {
            x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
            x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
            return x ^ (x >> 31);
        }
        bits unit_bits(bits n, bits state) {
            bits const gamma = 0x9e3779b97f4a7c15ull;
            return mixed(mixed(n * gamma + state + gamma) + state) >> 11;
        })";
    return at::cuda::CompileAndLaunchKernel(bits_of_number + code, name, 1, x, numbers, false)[0];
}
[[nodiscard]] inline at::Tensor unit_bits_on_cuda(at::Tensor const& n, std::uint64_t state) {
    static std::string const code = R"(
        template <typename T> T unit_bits_of(T n, T state) { return T(unit_bits(bits(n), bits(state))); })";
    return drawn_on_cuda(code, "unit_bits_of", {n}, {static_cast<std::int64_t>(state)});
}
#endif

[[nodiscard]] inline at::Tensor shifted_right(at::Tensor const& x, int by) {
    return x.bitwise_right_shift(by).bitwise_and(static_cast<std::int64_t>(~std::uint64_t{0} >> by));
}
[[nodiscard]] inline std::int64_t as_signed(std::uint64_t x) { return static_cast<std::int64_t>(x); }

/// Does for each element what `search::mix_bits` does.
[[nodiscard]] inline at::Tensor mixed_bits(at::Tensor x) {
    x = (x.bitwise_xor(shifted_right(x, 30))).mul(as_signed(search::mixing_factors[0]));
    x = (x.bitwise_xor(shifted_right(x, 27))).mul(as_signed(search::mixing_factors[1]));
    return x.bitwise_xor(shifted_right(x, 31));
}

/// Returns for each number n the 53 bits of which `random_unit` makes its number, of a key in this state.
[[nodiscard]] inline at::Tensor unit_bits(at::Tensor const& n, std::uint64_t state) {
    using search::golden_gamma;
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
    if (n.is_cuda()) return unit_bits_on_cuda(n, state);
#endif
    if (n.is_cpu()) { // one pass instead of one for each operation
        auto const numbers = n.contiguous();
        auto bits = at::empty_like(numbers);
        auto const* const from = numbers.data_ptr<std::int64_t>();
        std::transform(from, from + numbers.numel(), bits.data_ptr<std::int64_t>(), [state](std::int64_t number) {
            auto const first =
                search::mix_bits(static_cast<std::uint64_t>(number) * golden_gamma + state + golden_gamma);
            return as_signed(search::mix_bits(first + state) >> 11);
        });
        return bits;
    }
    auto const first = mixed_bits(n.mul(as_signed(golden_gamma)).add(as_signed(state + golden_gamma)));
    return shifted_right(mixed_bits(first.add(as_signed(state))), 11);
}
/// Returns the state from which a call draws.
[[nodiscard]] inline std::uint64_t drawing_state(kernel_call const& call) {
    using search::golden_gamma, search::mix_bits;
    refuse_recording(call, "draws random numbers, which would be the same in every iteration");
    auto const key = call.random;
    return mix_bits(key.seed + golden_gamma) ^ mix_bits(key.stream * golden_gamma + 1);
}
[[nodiscard]] inline at::Tensor unit_bits(kernel_call const& call, at::Tensor const& n) {
    return unit_bits(n, drawing_state(call));
}
[[nodiscard]] inline at::Tensor random_units(kernel_call const& call, at::Tensor const& n) {
    return unit_bits(call, n).to(at::kDouble).mul(0x1p-53);
}
[[nodiscard]] inline at::Tensor random_normals(kernel_call const& call, at::Tensor const& n) {
    auto const radius = (random_units(call, n * 2).neg().log1p() * -2).sqrt();
    return radius * (random_units(call, n * 2 + 1) * (2 * std::numbers::pi)).cos();
}
/// Drops each place of a part of a tensor with probability p, by its number in the whole.
class place_dropper {
public:
    /// The part's places have shape `dims`, with as many elements as the part.
    place_dropper(kernel_call const& call, tensor_shape const& whole, held_part const& part, tensor_shape const& dims,
                  double p, at::Device device)
        : state_(drawing_state(call)), p_(p) {
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
        constexpr extent exact_in_float = 1 << 24;
        extent const width = whole.empty() ? 0 : whole.back();
        if (device.is_cuda() && width > 0 && width <= exact_in_float &&
            heddle::count_elements(whole) / width <= exact_in_float) {
            auto shape = dims;
            shape.back() = 1;
            auto const row = whole_numbers({whole.begin(), whole.end() - 1}, {part.begin(), part.end() - 1}, device);
            row_ = row.reshape(shape).to(at::kFloat);
            column_ = positions(part.back(), width, device).to(at::kFloat);
            width_ = width;
            return;
        }
#endif
        is_kept_ = unit_bits(whole_numbers(whole, part, device).reshape(dims), state_) >= least_bits();
    }
    /// Returns 1 / (1 - p) times the elements of the places that are kept, and zeros. The dimensions of `x` after those
    /// of the places are kept or dropped together.
    [[nodiscard]] at::Tensor operator()(at::Tensor const& x) const {
        double const scale = p_ < 1 ? 1 / (1 - p_) : 0;
        auto const as_x = [&](at::Tensor places, extent rank) {
            for (auto d = rank; d < x.dim(); ++d) places = places.unsqueeze(-1);
            return places;
        };
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
        if (row_.defined()) {
            static std::string const code = R"(
                template <typename T>
                T kept(T x, T row, T column, bits width, bits state, bits least, double scale) {
                    return unit_bits(bits(row) * width + bits(column), state) < least ? T(0) : T(x * T(scale));
                })";
            return drawn_on_cuda(code, "kept", {x, as_x(row_, row_.dim()), as_x(column_, row_.dim())},
                                 {width_, as_signed(state_), least_bits(), scale});
        }
#endif
        return at::native_dropout_backward(x, as_x(is_kept_, is_kept_.dim()), scale);
    }

private:
    [[nodiscard]] std::int64_t least_bits() const { return static_cast<std::int64_t>(std::ceil(p_ * 0x1p53)); }

    std::uint64_t state_;
    double p_;
    at::Tensor is_kept_;
#ifdef HEDDLE_LIBTORCH_HAS_CUDA
    /// The number of a place is row * width + column.
    at::Tensor row_, column_;
    std::int64_t width_ = 0;
#endif
};

// ---- statistics

/// Returns a statistic of whole rows, given this rank's.
[[nodiscard]] inline at::Tensor combined(joined_call const& call, std::size_t which, reduction how,
                                         at::Tensor const& rows) {
    return call.combine_rows ? call.combine_rows(which, how, rows) : rows;
}

// ---- sums of products

/// Computes the sum of a rule's terms, each times a coefficient.
template <class Coefficients>
[[nodiscard]] operator_kernel from_rule(Coefficients coefficients) {
    auto const times = [](at::Tensor const& x, std::vector<double> const& c, std::size_t term) {
        return term < c.size() && c[term] != 1 ? x * c[term] : x;
    };
    operator_kernel kernel;
    kernel.forward = [=](joined_call const& call, tensor_list const& x) -> tensor_list {
        auto const& rule = *call.rule;
        if (!heddle::detail::is_multilinear(rule))
            call.fail("its rule is not multilinear, so it does not tell what '" + std::string(call.kind) +
                      "' computes");
        contraction const contract(call);
        auto const c = coefficients(call);
        auto const factors_of = [&](std::size_t term) {
            contraction::factor_list factors;
            for (auto k : rule.terms[term]) factors.emplace_back(x[k], &rule.operands[k]);
            return factors;
        };
        auto const& result = rule.results[0];
        auto const dims = call.result_shape(0);
        if (rule.terms.size() == 2 && rule.terms[1].size() == 1 &&
            algorithm::all_of(c, [](double n) { return n == 1; }))
            return {contract(factors_of(0), result, dims, factors_of(1).front())};
        at::Tensor sum;
        for (std::size_t t = 0; t < rule.terms.size(); ++t) {
            auto const term = times(contract(factors_of(t), result, dims), c, t);
            sum = sum.defined() ? sum + term : term;
        }
        return {sum};
    };
    kernel.backward = [=](joined_call const& call, tensor_list const& x, tensor_list const&, tensor_list const& g) {
        auto const& rule = *call.rule;
        if (algorithm::any_of(rule.operands, has_repeated_index)) // then a cotangent is not a sum of products
            return differentiate({kernel.forward}, call, x, g);
        contraction const contract(call);
        auto const c = coefficients(call);
        gradient_list result(x.size());
        for (std::size_t t = 0; t < rule.terms.size(); ++t)
            for (auto k : rule.terms[t]) {
                contraction::factor_list factors{{g[0], &rule.results[0]}};
                for (auto other : rule.terms[t])
                    if (other != k) factors.emplace_back(x[other], &rule.operands[other]);
                result[k] = times(contract(factors, rule.operands[k], call.operand_shape(k)), c, t);
            }
        return result;
    };
    return kernel;
}

} // namespace detail

} // namespace heddle::libtorch
