// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A tensor of libtorch as a rank holds it.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/tensor.hpp>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <cassert>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::libtorch {

namespace detail {

[[nodiscard]] inline at::Device& device_of_thread() {
    thread_local at::Device device = at::kCPU;
    return device;
}
[[nodiscard]] inline bool& thread_records() {
    thread_local bool records = false;
    return records;
}

} // namespace detail

/// While it lives, the calling thread makes its tensors on a device. It is the CPU if nothing is said.
class device_scope {
public:
    explicit device_scope(at::Device device) : before_(std::exchange(detail::device_of_thread(), device)) {}
    device_scope(device_scope const&) = delete;
    device_scope& operator=(device_scope const&) = delete;
    ~device_scope() { detail::device_of_thread() = before_; }

private:
    at::Device before_;
};

/// While it lives, what the calling thread computes is recorded, to be computed again of other values in the same
/// memory. Kernels refuse to draw random numbers, which would be the same again, and sizes that follow from values.
class recording_scope {
public:
    recording_scope() : before_(std::exchange(detail::thread_records(), true)) {}
    recording_scope(recording_scope const&) = delete;
    recording_scope& operator=(recording_scope const&) = delete;
    ~recording_scope() { detail::thread_records() = before_; }

private:
    bool before_;
};

/// Stands for the elements of a tensor where `for_each_element` computes with all of them at once.
class element_values {
public:
    explicit element_values(at::Tensor value) : value_(std::move(value)) {}
    explicit element_values(double number) : value_(at::scalar_tensor(number, at::kDouble)) {}
    [[nodiscard]] at::Tensor const& value() const { return value_; }

    friend element_values operator+(element_values const& a, element_values const& b) {
        return element_values(a.value_ + b.value_);
    }
    friend element_values operator-(element_values const& a, element_values const& b) {
        return element_values(a.value_ - b.value_);
    }
    friend element_values operator*(element_values const& a, element_values const& b) {
        return element_values(a.value_ * b.value_);
    }
    friend element_values operator/(element_values const& a, element_values const& b) {
        return element_values(a.value_ / b.value_);
    }
    friend element_values sqrt(element_values const& a) { return element_values(a.value_.sqrt()); }
    friend element_values min(element_values const& a, element_values const& b) {
        return element_values(at::minimum(a.value_, b.value_));
    }

private:
    at::Tensor value_; // of a number: on the host, where libtorch takes it as a number
};

/// A tensor of libtorch whose elements are of type `Scalar` and in row-major order; whole numbers and truth values are
/// held as numbers too, of type float if `Scalar` is c10::Half or c10::BFloat16. It models `rank_tensor`.
///
/// Copies share memory until one of them is changed. An empty tensor may be assigned to and nothing else.
template <class Scalar>
class tensor {
    static constexpr bool is_narrow = sizeof(Scalar) < sizeof(float);

public:
    using scalar_type = Scalar;
    using number_type = std::conditional_t<is_narrow, float, Scalar>;
    using wide_type = tensor<number_type>;

    tensor() = default;
    explicit tensor(tensor_shape const& dims, number_type value = {}) : value_(at::full(dims, value, options())) {}
    explicit tensor(dense_tensor<number_type> const& host) : value_(there(host, options())) {}
    /// Has elements of a program's type: whole numbers exactly.
    tensor(dense_tensor<number_type> const& host, element_type of_program)
        : value_(there(host, is_floating(of_program) ? options() : wide_type::options())) {}
    /// Has the elements of a tensor of any type and order, and its memory if it is as this type's.
    explicit tensor(at::Tensor const& value) : value_(value.detach().to(type).contiguous()) {}
    tensor(tensor<number_type> const& x, element_type of_program) : tensor(x.value(), of_program) {}
    tensor(at::Tensor const& value, element_type of_program)
        : value_(value.detach().to(is_floating(of_program) ? type : wide_type::type).contiguous()) {}
    template <class Other>
        requires(!std::same_as<Other, Scalar>)
    explicit tensor(tensor<Other> const& x) : tensor(x.value()) {}

    static constexpr at::ScalarType type = c10::CppTypeToScalarType<Scalar>::value;
    /// Returns the element type and the thread's device.
    [[nodiscard]] static at::TensorOptions options() {
        return at::TensorOptions(type).device(detail::device_of_thread());
    }
    [[nodiscard]] at::Tensor const& value() const { return value_; }

    [[nodiscard]] tensor_shape shape() const { return value_.sizes().vec(); }
    [[nodiscard]] extent elements() const { return value_.numel(); }
    /// *Throws* `error` for whole numbers that `Scalar` does not hold.
    [[nodiscard]] std::span<Scalar> flat() {
        require_scalars();
        return {own().template data_ptr<Scalar>(), count()};
    }
    [[nodiscard]] std::span<Scalar const> flat() const {
        require_scalars();
        return {value_.template data_ptr<Scalar>(), count()};
    }
    [[nodiscard]] number_type number() const { return value_.template item<number_type>(); }
    [[nodiscard]] dense_tensor<number_type> on_host() const {
        auto const all = value_.to(at::TensorOptions(wide_type::type).device(at::kCPU));
        auto const* data = all.template data_ptr<number_type>();
        return {shape(), std::vector<number_type>(data, data + all.numel())};
    }
    static void copy(std::span<Scalar const> from, std::span<Scalar> to) {
        assert(from.size() == to.size());
        auto const size = static_cast<extent>(to.size());
        at::Tensor target = seen(to.data(), {size}, options());
        target.copy_(seen(const_cast<Scalar*>(from.data()), {size}, options()));
    }

    tensor& operator+=(tensor const& other) {
        own().add_(other.value_);
        return *this;
    }
    tensor& operator*=(number_type scale) {
        own().mul_(scale);
        return *this;
    }

    friend tensor sum_of_squares(tensor const& x) { return tensor((x.value_ * x.value_).sum()); }

    template <class Function, class... Others>
    friend void for_each_element(Function&& f, tensor& y, Others&... x) {
        [&](auto... of_x) {
            element_values of_y(y.value_);
            f(of_y, of_x...);
            y.assign(of_y);
            (assign(x, of_x), ...);
        }(elements_of(x)...);
    }
    friend void take(tensor const& x, factor const& f, extent begin, extent count, std::span<Scalar> to) {
        auto target = seen(to.data(), part_shape(x.shape(), f, count), x.value_.options());
        for_each_piece(x.value_, target, f, begin, count, [](at::Tensor whole, at::Tensor part) { part.copy_(whole); });
    }
    friend tensor take(tensor const& x, factor const& f, extent begin, extent count) {
        tensor part;
        part.value_ = at::empty(part_shape(x.shape(), f, count), x.value_.options());
        for_each_piece(x.value_, part.value_, f, begin, count,
                       [](at::Tensor whole, at::Tensor mine) { mine.copy_(whole); });
        return part;
    }
    friend void put(tensor& y, factor const& f, extent begin, extent count, std::span<Scalar const> from) {
        auto const part = seen(const_cast<Scalar*>(from.data()), part_shape(y.shape(), f, count), y.value_.options());
        for_each_piece(y.own(), part, f, begin, count, [](at::Tensor whole, at::Tensor piece) { whole.copy_(piece); });
    }

private:
    void require_scalars() const {
        if constexpr (is_narrow)
            if (value_.scalar_type() != type)
                throw error(
                    "ranks of device groups or of pipelines send each other whole numbers, for which scalars of "
                    "16 bits have too few; compute with float32");
    }
    [[nodiscard]] static at::Tensor there(dense_tensor<number_type> const& host, at::TensorOptions const& options) {
        auto* const data = const_cast<number_type*>(host.data.data());
        return at::from_blob(data, host.dims, at::TensorOptions(wide_type::type)).to(options, false, true);
    }
    [[nodiscard]] static at::Tensor seen(Scalar* data, tensor_shape const& dims, at::TensorOptions const& options) {
        return count_elements(dims) == 0 ? at::empty(dims, options) : at::from_blob(data, dims, options);
    }
    [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(value_.numel()); }

    // What is not changed has const elements.
    [[nodiscard]] static element_values elements_of(tensor const& x) { return element_values(x.value_); }
    static void assign(tensor const&, element_values const&) {}
    static void assign(tensor& x, element_values const& made) { x.assign(made); }
    void assign(element_values const& made) {
        if (!made.value().is_same(value_)) own().copy_(made.value());
    }

    /// Returns the tensor with memory that no other shares.
    at::Tensor& own() {
        if (value_.use_count() > 1 || value_.storage().use_count() > 1) value_ = value_.clone();
        return value_;
    }

    /// Calls `visit` with what each piece of a factor's dimension has of the places, in a tensor and in its part; both
    /// are seen as (..., pieces, places, positions of a place, ...).
    template <class Visitor>
    static void for_each_piece(at::Tensor const& whole, at::Tensor const& part, factor const& f, extent begin,
                               extent count, Visitor&& visit) {
        if (part.numel() == 0) return;
        auto const d = static_cast<extent>(f.dimension);
        extent of_whole = 0, of_part = 0;
        auto const piece = [&](extent pieces, extent width) {
            extent const size = pieces * f.extent * width, mine = pieces * count * width;
            visit(whole.narrow(d, of_whole, size).unflatten(d, {pieces, f.extent, width}).narrow(d + 1, begin, count),
                  part.narrow(d, of_part, mine).unflatten(d, {pieces, count, width}));
            of_whole += size;
            of_part += mine;
        };
        if (f.widths.empty()) piece(whole.size(d) / (f.extent * f.stride), f.stride);
        for (extent const width : f.widths) piece(1, width);
    }

    at::Tensor value_;
};

static_assert(rank_tensor<tensor<float>> && rank_tensor<tensor<double>>);
static_assert(rank_tensor<tensor<c10::BFloat16>> && rank_tensor<tensor<c10::Half>>);

} // namespace heddle::libtorch
