// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of libtorch: convolutions, pools, resizing, attention and recurrent layers.
#pragma once

#include <heddle/execute/detail/window_kernels.hpp>
#include <heddle/libtorch/detail/place_kernels.hpp>

#include <limits>

namespace heddle::libtorch::detail {

// ---- windows

/// Returns a tensor (samples, 1, sides...) of the last dimensions, and back in the shape of the call's result.
[[nodiscard]] inline at::Tensor as_samples(at::Tensor const& x, std::size_t rank) {
    auto const last = static_cast<extent>(rank);
    tensor_shape shape(x.sizes().end() - last, x.sizes().end());
    extent samples = 1;
    for (extent d = 0; d < x.dim() - last; ++d) samples *= x.size(d);
    shape.insert(shape.begin(), {samples, 1});
    return x.reshape(shape);
}

/// Cuts or pads the end of the last dimensions so that windows give results of this shape.
[[nodiscard]] inline at::Tensor fitted(at::Tensor x, tensor_shape const& result, std::vector<extent> const& window,
                                       std::vector<extent> const& stride, std::vector<extent> const& padding,
                                       std::vector<extent> const& dilation) {
    std::size_t const rank = window.size();
    for (std::size_t d = 0; d < rank; ++d) {
        extent const axis = x.dim() - static_cast<extent>(rank - d);
        extent const wanted =
            (result[result.size() - rank + d] - 1) * stride[d] + dilation[d] * (window[d] - 1) + 1 - 2 * padding[d];
        if (wanted <= x.size(axis)) continue; // what is left over has no window
        std::vector<extent> sides(2 * (rank - d), 0);
        sides.back() = wanted - x.size(axis);
        x = at::constant_pad_nd(x, sides);
    }
    return x;
}

[[nodiscard]] inline operator_kernel convolution_kernel(bool is_transposed) {
    return one_result([=](kernel_call const& call, tensor_list const& x) {
        using heddle::detail::sides_of;
        auto const rank = static_cast<std::size_t>(x[1].dim() - 2);
        std::vector<extent> const ones(rank, 1), window(x[1].sizes().begin() + 2, x[1].sizes().end());
        auto const stride = sides_of(call, "stride", rank, ones), dilation = sides_of(call, "dilation", rank, ones),
                   padding = sides_of(call, "padding", rank, std::vector<extent>(rank, 0));
        auto const shape = call.result_shape(0);
        auto const& channels = call.rule->operands[1][0];
        extent const groups = channels.size() < 2 ? 1 : heddle::detail::held_extents(call)[channels[0]];
        auto const bias = x.size() > 2 ? c10::optional<at::Tensor>(x[2]) : c10::nullopt;
        if (x[0].numel() == 0 || x[1].numel() == 0) {
            auto const y = at::zeros(shape, x[0].options());
            if (!bias) return y;
            tensor_shape along(rank + 1, 1);
            along[0] = bias->size(0);
            return y + bias->reshape(along);
        }
        bool const is_single = x[0].dim() == static_cast<extent>(rank) + 1;
        auto input = is_single ? x[0].unsqueeze(0) : x[0];
        std::vector<extent> more(rank, 0);
        for (std::size_t d = 0; is_transposed && d < rank; ++d)
            more[d] = shape[shape.size() - rank + d] - ((input.size(static_cast<extent>(d + 2)) - 1) * stride[d] -
                                                        2 * padding[d] + dilation[d] * (window[d] - 1) + 1);
        if (!is_transposed) input = fitted(input, shape, window, stride, padding, dilation);
        auto y = at::convolution(input, x[1], bias, stride, padding, dilation, is_transposed, more, groups);
        for (std::size_t d = 0; d < rank; ++d)
            y = y.narrow(static_cast<extent>(d + 2), 0, shape[shape.size() - rank + d]);
        return is_single ? y.squeeze(0) : y;
    });
}

/// The sides of a pool's windows. Libtorch has no pools of one dimension with all options, so that is a dimension more.
struct pool_sides {
    std::size_t rank;
    std::vector<extent> window, stride, padding, dilation;
    /// There are windows that begin before the far padding and end after it.
    bool rounds_up = false;
    at::Tensor input;

    pool_sides(kernel_call const& call, at::Tensor const& x) {
        using heddle::detail::sides_of;
        auto const sides = call.numbers("kernel_size");
        if (sides.empty()) call.fail("the size of its windows is not known");
        rank = sides.size();
        window.assign(sides.begin(), sides.end());
        stride = sides_of(call, "stride", rank, window);
        padding = sides_of(call, "padding", rank, std::vector<extent>(rank, 0));
        dilation = sides_of(call, "dilation", rank, std::vector<extent>(rank, 1));
        auto const shape = call.result_shape(0);
        for (std::size_t d = 0; d < rank; ++d) {
            extent const size = x.size(x.dim() - static_cast<extent>(rank - d)) + 2 * padding[d];
            extent const last = (shape[shape.size() - rank + d] - 1) * stride[d]; // where the last window begins
            rounds_up = rounds_up || last + dilation[d] * (window[d] - 1) + 1 > size;
        }
        input = as_samples(x, rank);
        if (rank > 1) return;
        input = input.unsqueeze(-2);
        for (auto* list : {&window, &stride, &dilation}) list->insert(list->begin(), 1);
        padding.insert(padding.begin(), 0);
    }
};

/// Returns the rank that the name of an operator ends with.
[[nodiscard]] inline std::size_t rank_of(kernel_call const& call) {
    return static_cast<std::size_t>(call.kind[call.kind.size() - 2] - '0');
}

inline void add_window_kernels(kernel_table& table) {
    for (std::string const rank : {"1d", "2d", "3d"}) {
        table["conv" + rank] = convolution_kernel(false);
        table["conv_transpose" + rank] = convolution_kernel(true);
        table["max_pool" + rank] = {[](kernel_call const& call, tensor_list const& x) {
            pool_sides const s(call, x[0]);
            auto const [values, places] =
                s.rank == 3
                    ? at::max_pool3d_with_indices(s.input, s.window, s.stride, s.padding, s.dilation, s.rounds_up)
                    : at::max_pool2d_with_indices(s.input, s.window, s.stride, s.padding, s.dilation, s.rounds_up);
            tensor_list y{values.reshape(call.result_shape(0))};
            if (call.results.size() > 1) y.push_back(places.reshape(call.result_shape(1)));
            return y;
        }};
        table["avg_pool" + rank] = one_result([](kernel_call const& call, tensor_list const& x) {
            pool_sides const s(call, x[0]);
            c10::optional<std::int64_t> divisor;
            if (call.has("divisor_override")) divisor = static_cast<std::int64_t>(call.number("divisor_override", 1));
            bool const with_padding = call.flag("count_include_pad", true);
            return (s.rank == 3
                        ? at::avg_pool3d(s.input, s.window, s.stride, s.padding, s.rounds_up, with_padding, divisor)
                        : at::avg_pool2d(s.input, s.window, s.stride, s.padding, s.rounds_up, with_padding, divisor))
                .reshape(call.result_shape(0));
        });
        for (bool const of_largest : {false, true})
            table[(of_largest ? "adaptive_max_pool" : "adaptive_avg_pool") + rank] = {
                [=](kernel_call const& call, tensor_list const& x) {
                    auto const shape = call.result_shape(0);
                    auto const dims = static_cast<std::size_t>(rank[0] - '0');
                    std::vector<extent> sides(shape.end() - static_cast<std::ptrdiff_t>(dims), shape.end());
                    auto input = as_samples(x[0], dims);
                    if (dims == 1) {
                        input = input.unsqueeze(-2);
                        sides.insert(sides.begin(), 1);
                    }
                    if (!of_largest)
                        return tensor_list{
                            (dims == 3 ? at::adaptive_avg_pool3d(input, sides) : at::adaptive_avg_pool2d(input, sides))
                                .reshape(shape)};
                    auto const [values, places] =
                        dims == 3 ? at::adaptive_max_pool3d(input, sides) : at::adaptive_max_pool2d(input, sides);
                    tensor_list y{values.reshape(shape)};
                    if (call.results.size() > 1) y.push_back(places.reshape(shape));
                    return y;
                }};
    }
    table["interpolate"] = one_result([](kernel_call const& call, tensor_list const& x) {
        auto const shape = call.result_shape(0);
        auto const rank = static_cast<std::size_t>(call.number("rank", 2));
        std::vector<extent> const sides(shape.end() - static_cast<std::ptrdiff_t>(rank), shape.end());
        auto const input = as_samples(x[0], rank);
        auto const neighbours = static_cast<int>(call.number("neighbours", 1));
        bool const corners = call.flag("align_corners");
        auto const factors = call.numbers("factors");
        auto const f = [&](std::size_t d) {
            return factors.empty() ? c10::optional<double>() : c10::optional<double>(factors.at(d));
        };
        auto const resized = [&] {
            if (neighbours == 1)
                return rank == 1   ? at::upsample_nearest1d(input, sides, f(0))
                       : rank == 2 ? at::upsample_nearest2d(input, sides, f(0), f(1))
                                   : at::upsample_nearest3d(input, sides, f(0), f(1), f(2));
            if (neighbours == 2)
                return rank == 1   ? at::upsample_linear1d(input, sides, corners, f(0))
                       : rank == 2 ? at::upsample_bilinear2d(input, sides, corners, f(0), f(1))
                                   : at::upsample_trilinear3d(input, sides, corners, f(0), f(1), f(2));
            if (rank != 2) call.fail("libtorch resizes by cubic functions in two dimensions only");
            return at::upsample_bicubic2d(input, sides, corners, f(0), f(1));
        };
        return resized().reshape(shape);
    });
}

// ---- attention

/// Adds a mask to scores: numbers as they are; of truth values, those that are set take part.
[[nodiscard]] inline at::Tensor masked(at::Tensor const& scores, at::Tensor const& mask, bool is_boolean) {
    return is_boolean ? scores.masked_fill(mask == 0, -std::numeric_limits<double>::infinity()) : scores + mask;
}

/// Returns the weights of each row of scores; a row in which nothing takes part has zeros, as in PyTorch from 2.5 on.
[[nodiscard]] inline at::Tensor weights_of(at::Tensor const& scores) {
    auto const is_empty = (scores == -std::numeric_limits<double>::infinity()).all(-1, true);
    return scores.masked_fill(is_empty, 0).softmax(-1).masked_fill(is_empty, 0);
}

/// Attention over the last two dimensions, for each place of the indices of the others. An operand that lacks one of
/// these indices broadcasts.
class attention {
public:
    attention(kernel_call const& call, tensor_list const& x)
        : call_(call), x_(x), mask_(call.operand("mask")), p_(call.number("p", 0)) {
        contraction const contract(call);
        auto const& result = call.rule->results[0];
        std::vector<std::uint16_t> leading;
        for (auto d = result.begin(); d != result.end() - 2; ++d) leading.insert(leading.end(), d->begin(), d->end());
        for (auto i : leading) result_shape_.push_back(contract.size(i));
        result_shape_.insert(result_shape_.end(), {x[0].size(-2), x[2].size(-1)});
        for (std::size_t k = 0; k < x.size(); ++k)
            spread_.emplace_back(contract, call.rule->operands[k], leading, x[k]);
        scale_ = call.number("scale", 1 / std::sqrt(static_cast<double>(x[0].size(-1))));
        weights_ = weights_of_rows();
        if (p_ > 0) drop_ = dropper_of_weights();
    }

    [[nodiscard]] at::Tensor result() const {
        return at::matmul(in_type(dropped(weights_)), v()).reshape(call_.result_shape(0));
    }
    [[nodiscard]] gradient_list gradients(at::Tensor const& of_result) const {
        auto const g = of_result.reshape(result_shape_);
        auto const of_weights =
            dropped(at::sum_to(at::matmul(g, v().transpose(-1, -2)), weights_.sizes()).to(weights_.scalar_type()));
        auto const of_scores = at::_softmax_backward_data(of_weights, weights_, -1, weights_.scalar_type());
        auto const g_scores = in_type(of_scores);
        gradient_list all(x_.size());
        all[0] = spread_[0].gathered(at::matmul(g_scores, k()) * scale_, x_[0]);
        all[1] = spread_[1].gathered(at::matmul(g_scores.transpose(-1, -2), q()) * scale_, x_[1]);
        all[2] = spread_[2].gathered(at::matmul(in_type(dropped(weights_)).transpose(-1, -2), g), x_[2]);
        if (mask_ && !call_.flag("mask_is_boolean")) all[*mask_] = spread_[*mask_].gathered(of_scores, x_[*mask_]);
        return all;
    }

private:
    /// An operand with a dimension for each leading index, of size 1 if it lacks that.
    struct spread_operand {
        std::vector<extent> order, lacks;
        at::Tensor value;

        spread_operand(contraction const& contract, indexed_access const& access,
                       std::vector<std::uint16_t> const& leading, at::Tensor const& x) {
            std::vector<std::uint16_t> own;
            tensor_shape dims;
            for (auto d = access.begin(); d != access.end() - 2; ++d)
                for (auto i : *d) {
                    own.push_back(i);
                    dims.push_back(contract.size(i));
                }
            auto const rank = static_cast<extent>(own.size());
            dims.insert(dims.end(), {x.size(-2), x.size(-1)});
            for (std::size_t n = 0; n < leading.size(); ++n) {
                auto const at = algorithm::find(own, leading[n]);
                if (at != own.end()) order.push_back(at - own.begin());
                else lacks.push_back(static_cast<extent>(n));
            }
            order.insert(order.end(), {rank, rank + 1});
            value = x.reshape(dims).permute(order);
            for (auto n : lacks) value = value.unsqueeze(n);
        }
        /// Returns the operand's cotangent from that of the value, which may have been broadcast.
        [[nodiscard]] at::Tensor gathered(at::Tensor g, at::Tensor const& x) const {
            g = at::sum_to(g, value.sizes());
            for (auto n = lacks.rbegin(); n != lacks.rend(); ++n) g = g.squeeze(*n);
            std::vector<extent> back(order.size());
            for (std::size_t n = 0; n < order.size(); ++n)
                back[static_cast<std::size_t>(order[n])] = static_cast<extent>(n);
            return g.permute(back).reshape(x.sizes());
        }
    };

    [[nodiscard]] at::Tensor const& q() const { return spread_[0].value; }
    [[nodiscard]] at::Tensor const& k() const { return spread_[1].value; }
    [[nodiscard]] at::Tensor const& v() const { return spread_[2].value; }
    [[nodiscard]] at::Tensor in_type(at::Tensor const& x) const { return x.to(x_[0].scalar_type()); }
    [[nodiscard]] at::Tensor dropped(at::Tensor const& x) const { return drop_ ? (*drop_)(x) : x; }
    /// Returns the weights before dropout; of scores of 16 bits in float.
    [[nodiscard]] at::Tensor weights_of_rows() const {
        auto scores = at::matmul(q() * scale_, k().transpose(-1, -2));
        if (scores.element_size() == 2) scores = scores.to(at::kFloat);
        if (call_.flag("is_causal")) {
            auto const keys = at::arange(scores.size(-1), scores.options().dtype(at::kLong));
            auto const rows = positions(call_.results[0].end()[-2], scores.size(-2), scores.device());
            scores = masked(scores, keys <= rows.unsqueeze(-1), true);
        }
        if (!mask_) return scores.softmax(-1); // only a mask leaves a row empty
        return weights_of(masked(scores, spread_[*mask_].value, call_.flag("mask_is_boolean")));
    }
    [[nodiscard]] place_dropper dropper_of_weights() const {
        auto whole = call_.whole_shape(call_.rule->results[0]);
        auto part = call_.results[0];
        whole.end()[-1] = weights_.size(-1);
        part.end()[-1] = std::nullopt;
        return {call_, whole, part, weights_.sizes().vec(), p_, weights_.device()};
    }

    kernel_call const& call_;
    tensor_list const& x_;
    std::optional<std::size_t> mask_;
    double p_, scale_ = 1;
    tensor_shape result_shape_;
    std::vector<spread_operand> spread_;
    at::Tensor weights_;
    std::optional<place_dropper> drop_;
};

inline void add_attention_kernels(kernel_table& table) {
    table["scaled_dot_product_attention"] = {
        [](kernel_call const& call, tensor_list const& x) { return tensor_list{attention(call, x).result()}; },
        [](kernel_call const& call, tensor_list const& x, tensor_list const&, tensor_list const& g) {
            return attention(call, x).gradients(g[0]);
        }};
}

// ---- recurrent layers

/// Computes a cell from its gates' sums from the input and from the state, gate by gate, and the states that enter
/// element by element. Operands are the input, the state, then these states (`extra` of them), two weights, and two
/// biases or none.
template <class Cell>
[[nodiscard]] operator_kernel cell_kernel(extent gates, std::size_t extra, Cell cell) {
    return {[=](kernel_call const&, tensor_list const& x) {
        std::size_t const weight = 2 + extra;
        auto const products = [&](std::size_t k) {
            auto const bias = x.size() > weight + 2 ? c10::optional<at::Tensor>(x[weight + 2 + k]) : c10::nullopt;
            return at::linear(x[k], x[weight + k], bias).chunk(gates, 1);
        };
        return cell(products(0), products(1), extra > 0 ? x[2] : at::Tensor());
    }};
}

inline void add_recurrent_kernels(kernel_table& table) {
    using tensor = at::Tensor;
    table["rnn_tanh_cell"] = cell_kernel(1, 0, [](tensor_list const& a, tensor_list const& b, tensor const&) {
        return tensor_list{(a[0] + b[0]).tanh()};
    });
    table["rnn_relu_cell"] = cell_kernel(1, 0, [](tensor_list const& a, tensor_list const& b, tensor const&) {
        return tensor_list{(a[0] + b[0]).relu()};
    });
    // The gates are input, forget, cell and output; the other state is the cell's.
    table["lstm_cell"] = cell_kernel(4, 1, [](tensor_list const& a, tensor_list const& b, tensor const& c) {
        auto const cell = (a[1] + b[1]).sigmoid() * c + (a[0] + b[0]).sigmoid() * (a[2] + b[2]).tanh();
        return tensor_list{(a[3] + b[3]).sigmoid() * cell.tanh(), cell};
    });
    // The gates are reset, update and new; the other state is the same state, element by element.
    table["gru_cell"] = cell_kernel(3, 1, [](tensor_list const& a, tensor_list const& b, tensor const& h) {
        auto const update = (a[1] + b[1]).sigmoid(), next = (a[2] + (a[0] + b[0]).sigmoid() * b[2]).tanh();
        return tensor_list{(1 - update) * next + update * h};
    });
    /// Layers of a cell. Operands are the sequence, the states before it (run, batch, hidden), and the cell's weights
    /// for each run, that is, for each layer and direction. Results are the outputs and the states after the sequence.
    auto const layers = [&](char const* kind, std::size_t states, auto run) {
        table[kind] = {[=](kernel_call const& call, tensor_list const& x) {
            tensor_list const before(x.begin() + 1, x.begin() + 1 + static_cast<std::ptrdiff_t>(states)),
                weights(x.begin() + 1 + static_cast<std::ptrdiff_t>(states), x.end());
            if (x[1].size(1) == 0) { // no batch
                tensor_list y;
                for (std::size_t r = 0; r < call.results.size(); ++r)
                    y.push_back(at::zeros(call.result_shape(r), x[0].options()));
                return y;
            }
            auto const directions = static_cast<extent>(call.number("directions", 1));
            bool const is_biased = weights.size() > 2 * static_cast<std::size_t>(x[1].size(0));
            return run(x[0], before, weights, is_biased, x[1].size(0) / directions, directions > 1,
                       call.flag("batch_first"));
        }};
    };
    auto const list = [](auto&& results) {
        return std::apply([](auto&&... y) { return tensor_list{y...}; }, std::move(results));
    };
    // Without dropout, training only says that there may be a backward pass.
    layers("rnn_tanh", 1,
           [=](tensor const& x, tensor_list const& h, tensor_list const& w, bool biased, extent depth, bool both,
               bool batch_first) {
               return list(at::rnn_tanh(x, h[0], w, biased, depth, 0, c10::GradMode::is_enabled(), both, batch_first));
           });
    layers("rnn_relu", 1,
           [=](tensor const& x, tensor_list const& h, tensor_list const& w, bool biased, extent depth, bool both,
               bool batch_first) {
               return list(at::rnn_relu(x, h[0], w, biased, depth, 0, c10::GradMode::is_enabled(), both, batch_first));
           });
    layers("gru", 1,
           [=](tensor const& x, tensor_list const& h, tensor_list const& w, bool biased, extent depth, bool both,
               bool batch_first) {
               return list(at::gru(x, h[0], w, biased, depth, 0, c10::GradMode::is_enabled(), both, batch_first));
           });
    layers("lstm", 2,
           [=](tensor const& x, tensor_list const& h, tensor_list const& w, bool biased, extent depth, bool both,
               bool batch_first) {
               return list(at::lstm(x, h, w, biased, depth, 0, c10::GradMode::is_enabled(), both, batch_first));
           });
}

} // namespace heddle::libtorch::detail
