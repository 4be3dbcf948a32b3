// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The kernel of tokens that go through the experts chosen for them.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>
#include <heddle/program/detail/expert_operators.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The tokens of every expert: each matrix that is sent has a row for each choice of a token, by expert and token.
///
/// Where experts are on several ranks, a rank first tells each other one how many rows it sends to each of its experts;
/// rows then travel by expert and token, and answers the same way back. The order of an expert's rows is that of ranks
/// and, within a rank, of its tokens.
template <class Scalar>
class expert_routes {
public:
    expert_routes(dense_call<Scalar> const& call, dense_tensor<Scalar> const& ids) : call_(call) {
        constexpr std::size_t matrices = 3; // the first operand that is cut by experts
        auto const all = static_cast<std::size_t>(call.whole_shape(call.rule->operands[matrices])[0]);
        if (auto const& held = call.operands[matrices][0]) held_.assign(held->begin(), held->end());
        else {
            held_.resize(all);
            std::iota(held_.begin(), held_.end(), std::size_t{0});
        }
        chosen_.resize(all);
        extent const choices = ids.dims[1];
        for (extent n = 0; n < ids.elements(); ++n) {
            auto const expert = static_cast<extent>(ids[n]);
            if (expert < 0 || static_cast<std::size_t>(expert) >= all)
                call.fail("chooses expert " + std::to_string(expert) + " of " + std::to_string(all));
            chosen_[static_cast<std::size_t>(expert)].push_back({n / choices, n});
        }
        if (exchanges()) count();
    }

    /// Returns what the held experts get, a matrix for each. `row_of(token, choice, row)` fills the row for a token; a
    /// choice is numbered in all that the rank holds.
    template <class Fill>
    [[nodiscard]] std::vector<matrix<Scalar>> to_experts(std::size_t which, extent width, Fill&& row_of) const {
        std::vector<matrix<Scalar>> result;
        if (!exchanges()) {
            for (auto expert : held_) {
                auto& rows = result.emplace_back(chosen_[expert].size(), width);
                for (std::size_t n = 0; n < chosen_[expert].size(); ++n)
                    row_of(chosen_[expert][n].token, chosen_[expert][n].number,
                           rows.data() + static_cast<extent>(n) * width);
            }
            return result;
        }
        std::vector<Scalar> data;
        std::vector<Scalar> row(static_cast<std::size_t>(width));
        for_each_sent([&](chosen const& c) {
            row_of(c.token, c.number, row.data());
            data.insert(data.end(), row.begin(), row.end());
        });
        auto const got = sent(which, std::move(data), times(sent_, width), times(received_, width));
        for (std::size_t e = 0; e < held_.size(); ++e) result.emplace_back(rows_of(e), width);
        auto next = got.begin();
        std::vector<extent> filled(held_.size());
        for (std::size_t r = 0; r < call_.destinations.ranks; ++r)
            for (std::size_t e = 0; e < held_.size(); ++e)
                for (extent n = 0; n < counts(r, e); ++n, ++filled[e])
                    for (extent d = 0; d < width; ++d) result[e](filled[e], d) = *next++;
        return result;
    }

    /// Brings back a row for each one that an expert got, and calls `visit(token, choice, row)` for those of this rank.
    template <class Visit>
    void from_experts(std::size_t which, extent width, std::vector<matrix<Scalar>> const& rows, Visit&& visit) const {
        if (!exchanges()) {
            for (std::size_t e = 0; e < held_.size(); ++e)
                for (std::size_t n = 0; n < chosen_[held_[e]].size(); ++n)
                    visit(chosen_[held_[e]][n].token, chosen_[held_[e]][n].number,
                          rows[e].data() + static_cast<extent>(n) * width);
            return;
        }
        std::vector<Scalar> data;
        std::vector<extent> read(held_.size());
        for (std::size_t r = 0; r < call_.destinations.ranks; ++r)
            for (std::size_t e = 0; e < held_.size(); ++e)
                for (extent n = 0; n < counts(r, e); ++n, ++read[e])
                    for (extent d = 0; d < width; ++d) data.push_back(rows[e](read[e], d));
        auto const got = sent(which, std::move(data), times(received_, width), times(sent_, width));
        std::vector<Scalar> row(static_cast<std::size_t>(width));
        auto next = got.begin();
        for_each_sent([&](chosen const& c) {
            for (auto& number : row) number = *next++;
            visit(c.token, c.number, row.data());
        });
    }

private:
    struct chosen {
        extent token, number;
    };

    [[nodiscard]] std::vector<Scalar> sent(std::size_t which, std::vector<Scalar> data,
                                           std::vector<std::size_t> const& there,
                                           std::vector<std::size_t> const& here) const {
        tensor_shape const dims{static_cast<extent>(data.size())};
        return call_.send(which, dense_tensor<Scalar>(dims, std::move(data)), there, here).data;
    }
    [[nodiscard]] bool exchanges() const { return call_.send != nullptr; }

    /// Tells how many rows go to each expert, and learns how many come from each rank to those that are held.
    void count() {
        std::size_t const ranks = call_.destinations.ranks;
        std::vector<Scalar> data;
        std::vector<std::size_t> experts(ranks);
        sent_.resize(ranks);
        for_each_expert_by_owner([&](std::size_t expert, std::size_t owner) {
            data.push_back(static_cast<Scalar>(chosen_[expert].size()));
            ++experts[owner];
            sent_[owner] += chosen_[expert].size();
        });
        std::vector<std::size_t> const mine(ranks, held_.size());
        counts_ = sent(0, std::move(data), experts, mine);
        received_.resize(ranks);
        for (std::size_t r = 0; r < ranks; ++r)
            for (std::size_t e = 0; e < held_.size(); ++e) received_[r] += static_cast<std::size_t>(counts(r, e));
    }
    template <class Visit>
    void for_each_expert_by_owner(Visit&& visit) const {
        auto const& owner = call_.destinations.of;
        for (std::size_t r = 0; r < call_.destinations.ranks; ++r)
            for (std::size_t expert = 0; expert < owner.size(); ++expert)
                if (owner[expert] == r) visit(expert, r);
    }
    template <class Visit>
    void for_each_sent(Visit&& visit) const {
        for_each_expert_by_owner([&](std::size_t expert, std::size_t) {
            for (auto const& c : chosen_[expert]) visit(c);
        });
    }
    [[nodiscard]] extent counts(std::size_t rank, std::size_t e) const {
        return static_cast<extent>(counts_[rank * held_.size() + e]);
    }
    [[nodiscard]] extent rows_of(std::size_t e) const {
        extent all = 0;
        for (std::size_t r = 0; r < call_.destinations.ranks; ++r) all += counts(r, e);
        return all;
    }
    [[nodiscard]] static std::vector<std::size_t> times(std::vector<std::size_t> counts, extent width) {
        for (auto& count : counts) count *= static_cast<std::size_t>(width);
        return counts;
    }

    dense_call<Scalar> const& call_;
    std::vector<std::size_t> held_;            // experts, ascending
    std::vector<std::vector<chosen>> chosen_;  // by expert, in the order of tokens
    std::vector<Scalar> counts_;               // of the rows from each rank for each held expert
    std::vector<std::size_t> sent_, received_; // rows, by rank
};

/// One expert: two products and what is between them; see `routed_experts`.
template <class Scalar>
struct expert_layer {
    dense_call<Scalar> const& call;
    operator_kernel<Scalar> const& activation;
    const_matrix_map<Scalar> up, down;
    /// A row, or none.
    const_matrix_map<Scalar> up_bias, down_bias;
    bool gated = call.flag("gated"), interleaved = call.flag("interleaved");
    Scalar alpha = static_cast<Scalar>(call.number("alpha", 1)), offset = static_cast<Scalar>(call.number("offset", 0)),
           limit = static_cast<Scalar>(call.number("limit", std::numeric_limits<double>::infinity()));

    /// What is computed of rows: the product, alpha times its first half or all of it, the activation of that, what it
    /// is multiplied by, and what enters the second product.
    struct inner {
        matrix<Scalar> made;
        dense_tensor<Scalar> gate, active;
        matrix<Scalar> other, hidden;
    };

    [[nodiscard]] inner enter(matrix<Scalar> const& rows) const {
        inner x{rows * up, {}, {}, {}, {}};
        if (up_bias.rows() > 0) x.made.rowwise() += up_bias.row(0);
        extent const width = down.rows();
        x.gate = dense_tensor<Scalar>(tensor_shape{rows.rows(), width});
        x.other = matrix<Scalar>::Ones(rows.rows(), width);
        for (extent j = 0; j < width; ++j) {
            view(x.gate).col(j) = alpha * x.made.col(column(j, 0)).array().min(limit);
            if (gated) x.other.col(j) = x.made.col(column(j, 1)).array().min(limit).max(-limit) + offset;
        }
        dense_tensor<Scalar> const* const gate = &x.gate;
        x.active = std::move(activation.forward(call, std::span(&gate, 1)).front());
        x.hidden = view(x.active).array() / alpha * x.other.array();
        return x;
    }
    [[nodiscard]] matrix<Scalar> leave(inner const& x) const {
        matrix<Scalar> y = x.hidden * down;
        if (down_bias.rows() > 0) y.rowwise() += down_bias.row(0);
        return y;
    }
    /// Returns the cotangent of the first product from that of what entered the second.
    [[nodiscard]] matrix<Scalar> back(inner const& x, matrix<Scalar> const& cotangent) const {
        extent const width = down.rows();
        dense_tensor<Scalar> g(x.gate.dims);
        view(g) = cotangent.array() * x.other.array();
        dense_tensor<Scalar> const *const gate = &x.gate, *const active = &x.active, *const of_active = &g;
        auto of_gate = std::move(
            *activation.backward(call, std::span(&gate, 1), std::span(&active, 1), std::span(&of_active, 1))[0]);
        matrix<Scalar> result(cotangent.rows(), x.made.cols());
        auto const within = [&](extent c) { return x.made.col(c).array() <= limit; };
        for (extent j = 0; j < width; ++j) {
            extent const first = column(j, 0), second = column(j, 1);
            result.col(first) = within(first).select(view(of_gate).col(j).array(), Scalar(0));
            if (gated)
                result.col(second) =
                    (within(second) && x.made.col(second).array() >= -limit)
                        .select(cotangent.col(j).array() * view(x.active).col(j).array() / alpha, Scalar(0));
        }
        return result;
    }
    /// The place in the first product of number `j` of its first half, or second.
    [[nodiscard]] extent column(extent j, extent half) const {
        return !gated ? j : interleaved ? 2 * j + half : j + half * down.rows();
    }
    [[nodiscard]] static matrix_map<Scalar> view(dense_tensor<Scalar>& t) {
        return {t.data.data(), t.dims[0], t.dims[1]};
    }
    [[nodiscard]] static const_matrix_map<Scalar> view(dense_tensor<Scalar> const& t) {
        return {t.data.data(), t.dims[0], t.dims[1]};
    }
};

/// Operands are tokens, their experts, the experts' weights, two matrices of each expert, and perhaps what is added to
/// their products. `functions` has the activations.
template <class Scalar>
operator_kernel<Scalar> routed_experts_kernel(kernel_table<Scalar> const& functions) {
    std::vector<operator_kernel<Scalar>> activations;
    for (auto name : expert_activations) activations.push_back(functions.find(name)->second);
    auto const layer_of = [activations](dense_call<Scalar> const& call, tensor_view<Scalar> x, std::size_t e) {
        auto const &up = *x[3], &down = *x[4];
        auto const place = static_cast<extent>(e);
        auto const bias = [&](char const* which, extent width) {
            auto const k = call.operand(which);
            return k ? const_matrix_map<Scalar>(x[*k]->data.data() + place * width, 1, width)
                     : const_matrix_map<Scalar>(nullptr, 0, width);
        };
        return expert_layer<Scalar>{
            call,
            activations.at(static_cast<std::size_t>(call.number("activation", 0))),
            {up.data.data() + place * up.dims[1] * up.dims[2], up.dims[1], up.dims[2]},
            {down.data.data() + place * down.dims[1] * down.dims[2], down.dims[1], down.dims[2]},
            bias("up_bias", up.dims[2]),
            bias("down_bias", down.dims[2])};
    };
    enum exchanges : std::size_t { counts, rows, answers, cotangents, gradients_of_rows };
    auto const rows_of = [](dense_tensor<Scalar> const& t) {
        return [&t, width = t.dims[1]](extent token, extent, Scalar* row) {
            std::copy_n(t.data.data() + token * width, width, row);
        };
    };
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const width = y.dims[1];
                expert_routes<Scalar> const routes(call, *x[1]);
                auto given = routes.to_experts(rows, x[0]->dims[1], rows_of(*x[0]));
                for (std::size_t e = 0; e < given.size(); ++e) {
                    if (given[e].rows() == 0) continue;
                    auto const layer = layer_of(call, x, e);
                    given[e] = layer.leave(layer.enter(given[e]));
                }
                routes.from_experts(answers, width, given, [&](extent token, extent choice, Scalar const* row) {
                    for (extent d = 0; d < width; ++d) y[token * width + d] += (*x[2])[choice] * row[d];
                });
                return {std::move(y)};
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(x.size());
                auto& dx = result[0].emplace(x[0]->dims);
                auto& dweights = result[2].emplace(x[2]->dims);
                auto& dup = result[3].emplace(x[3]->dims);
                auto& ddown = result[4].emplace(x[4]->dims);
                auto const up_bias = call.operand("up_bias"), down_bias = call.operand("down_bias");
                for (auto const& k : {up_bias, down_bias})
                    if (k) result[*k].emplace(x[*k]->dims);
                extent const from = x[0]->dims[1], to = g[0]->dims[1];
                expert_routes<Scalar> const routes(call, *x[1]);
                auto given = routes.to_experts(rows, from, rows_of(*x[0]));
                auto const asked = routes.to_experts(cotangents, to, [&](extent token, extent choice, Scalar* row) {
                    for (extent d = 0; d < to; ++d) row[d] = (*x[2])[choice] * (*g[0])[token * to + d];
                });
                std::vector<matrix<Scalar>> made(given.size());
                for (std::size_t e = 0; e < given.size(); ++e) {
                    if (given[e].rows() == 0) continue;
                    auto const layer = layer_of(call, x, e);
                    auto const inside = layer.enter(given[e]);
                    made[e] = layer.leave(inside);
                    matrix<Scalar> const back = layer.back(inside, asked[e] * layer.down.transpose());
                    auto const place = static_cast<extent>(e);
                    matrix_map<Scalar>(ddown.data.data() + place * layer.down.size(), layer.down.rows(),
                                       layer.down.cols()) = inside.hidden.transpose() * asked[e];
                    matrix_map<Scalar>(dup.data.data() + place * layer.up.size(), layer.up.rows(), layer.up.cols()) =
                        given[e].transpose() * back;
                    auto const add = [&](std::optional<std::size_t> k, matrix<Scalar> const& rows) {
                        if (k)
                            matrix_map<Scalar>(result[*k]->data.data() + place * rows.cols(), 1, rows.cols()) =
                                rows.colwise().sum();
                    };
                    add(up_bias, back);
                    add(down_bias, asked[e]);
                    given[e] = back * layer.up.transpose();
                }
                routes.from_experts(answers, to, made, [&](extent token, extent choice, Scalar const* row) {
                    for (extent d = 0; d < to; ++d) dweights[choice] += (*g[0])[token * to + d] * row[d];
                });
                routes.from_experts(gradients_of_rows, from, given, [&](extent token, extent, Scalar const* row) {
                    for (extent d = 0; d < from; ++d) dx[token * from + d] += row[d];
                });
                return result;
            }};
}

} // namespace heddle::detail
