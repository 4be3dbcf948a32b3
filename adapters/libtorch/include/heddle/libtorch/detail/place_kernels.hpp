// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of libtorch that move elements by their places or by places held in a tensor, and route tokens.
#pragma once

#include <heddle/execute/detail/place_kernels.hpp>
#include <heddle/libtorch/detail/row_kernels.hpp>
#include <heddle/program/detail/expert_operators.hpp>

namespace heddle::libtorch::detail {

/// Returns the places [start, start + count * step) of a slice, dimension by dimension.
[[nodiscard]] inline at::Tensor picked(kernel_call const& call, at::Tensor x) {
    auto const start = call.numbers("start"), count = call.numbers("count"), step = call.numbers("step"),
               pieces = call.numbers("pieces");
    auto const rank = static_cast<std::size_t>(x.dim());
    if (start.size() != rank || step.size() != rank || count.size() != rank) call.fail("its slices are not known");
    for (std::size_t d = 0; d < rank; ++d) {
        auto const axis = static_cast<extent>(d);
        double const size = static_cast<double>(x.size(axis));
        double const share = d < pieces.size() && pieces[d] > 0 ? size / pieces[d] : 1; // a part has it of every piece
        auto const first = static_cast<extent>(start[d] * share), by = static_cast<extent>(step[d]);
        auto const places = static_cast<extent>(
            count[d] > 0 ? count[d] * share : std::ceil((size + count[d] - start[d] * share) / step[d]));
        if (size > 0 && (first < 0 || by < 1 || first + (places - 1) * by >= x.size(axis)))
            call.fail("takes " + std::to_string(places) + " places of " + std::to_string(x.size(axis)) +
                      " in dimension " + std::to_string(d));
        x = x.slice(axis, first, std::min(x.size(axis), first + (places - 1) * by + 1), by);
    }
    return x.reshape(call.result_shape(0));
}

/// Pads by the attribute `pad`, which has the numbers of elements before and after each dimension; negative ones cut.
[[nodiscard]] inline at::Tensor padded(kernel_call const& call, at::Tensor x) {
    using heddle::detail::padding_mode;
    auto const pad = call.numbers("pad");
    auto const mode = static_cast<padding_mode>(call.number("mode", 0));
    std::vector<extent> sides; // the last dimension first
    for (extent d = x.dim(); d-- > 0;)
        for (extent side : {0, 1}) sides.push_back(static_cast<extent>(pad[static_cast<std::size_t>(2 * d + side)]));
    if (x.numel() == 0) return at::full(call.result_shape(0), call.number("value", 0), x.options());
    if (mode == padding_mode::constant) return at::constant_pad_nd(x, sides, call.number("value", 0));
    for (extent d = 0; d < x.dim(); ++d) {
        auto const before = static_cast<extent>(pad[static_cast<std::size_t>(2 * d)]),
                   after = static_cast<extent>(pad[static_cast<std::size_t>(2 * d + 1)]), size = x.size(d);
        if (before == 0 && after == 0) continue;
        auto place = at::arange(-before, size + after, x.options().dtype(at::kLong));
        if (mode == padding_mode::replicate) place = place.clamp(0, size - 1);
        else if (mode == padding_mode::circular) place = place.remainder(size);
        else place = size - 1 - (size - 1 - place.abs()).abs();
        x = x.index_select(d, place);
    }
    return x;
}

/// Moves or drops elements by their places.
inline void add_place_kernels(kernel_table& table) {
    for (char const* kind :
         {"reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"})
        table[kind] = {[](kernel_call const& call, tensor_list const& x) { // elements keep their order
                           return tensor_list{x[0].reshape(call.result_shape(0))};
                       },
                       [](kernel_call const&, tensor_list const& x, tensor_list const&, tensor_list const& g) {
                           gradient_list all(x.size());
                           all[0] = g[0].reshape(x[0].sizes());
                           return all;
                       }};
    auto const axis = [](kernel_call const& call) { return static_cast<extent>(axis_of(call)); };
    table["cat"] = {[=](kernel_call const& call, tensor_list const& x) { return tensor_list{at::cat(x, axis(call))}; },
                    [=](kernel_call const& call, tensor_list const& x, tensor_list const&, tensor_list const& g) {
                        std::vector<extent> sizes;
                        for (auto const& t : x) sizes.push_back(t.size(axis(call)));
                        auto const parts = g[0].split_with_sizes(sizes, axis(call));
                        return gradient_list(parts.begin(), parts.end());
                    }};
    table["stack"] =
        one_result([=](kernel_call const& call, tensor_list const& x) { return at::stack(x, axis(call)); });
    table["unbind"] = {[=](kernel_call const& call, tensor_list const& x) { return x[0].unbind(axis(call)); }};
    for (char const* kind : {"split", "split_with_sizes", "tensor_split", "chunk"})
        table[kind] = {[=](kernel_call const& call, tensor_list const& x) {
                           std::vector<extent> sizes;
                           for (std::size_t r = 0; r < call.results.size(); ++r)
                               sizes.push_back(call.result_shape(r)[axis_of(call)]);
                           return x[0].split_with_sizes(sizes, axis(call));
                       },
                       [=](kernel_call const& call, tensor_list const&, tensor_list const&, tensor_list const& g) {
                           return gradient_list{at::cat(g, axis(call))};
                       }};
    for (char const* kind : {"select", "narrow", "slice"})
        table[kind] = one_result([](kernel_call const& call, tensor_list const& x) { return picked(call, x[0]); });
    table["append_cls_token"] = one_result([](kernel_call const&, tensor_list const& x) {
        return at::cat({x[1].reshape({1, 1, x[0].size(2)}).expand({x[0].size(0), 1, x[0].size(2)}), x[0]}, 1);
    });
    table["get_cls_token"] = one_result(
        [](kernel_call const& call, tensor_list const& x) { return x[0].select(1, 0).reshape(call.result_shape(0)); });
    auto const whole = [](std::vector<double> const& list) { return std::vector<extent>(list.begin(), list.end()); };
    table["roll"] = one_result([=](kernel_call const& call, tensor_list const& x) {
        return x[0].roll(whole(call.numbers("shifts")), whole(call.numbers("dims")));
    });
    table["flip"] = one_result(
        [=](kernel_call const& call, tensor_list const& x) { return x[0].flip(whole(call.numbers("dims"))); });
    table["pad"] = one_result([](kernel_call const& call, tensor_list const& x) { return padded(call, x[0]); });
    table["glu"] = one_result([=](kernel_call const& call, tensor_list const& x) {
        extent const half = x[0].size(axis(call)) / 2;
        return x[0].narrow(axis(call), 0, half) * x[0].narrow(axis(call), half, half).sigmoid();
    });
    table["diagonal"] = one_result([](kernel_call const& call, tensor_list const& x) {
        return x[0].diagonal(static_cast<extent>(call.number("offset", 0)), static_cast<extent>(call.number("dim1", 0)),
                             static_cast<extent>(call.number("dim2", 1)));
    });
    auto const triangle = [&](char const* kind, bool upper) {
        table[kind] = one_result([=](kernel_call const& call, tensor_list const& x) {
            tensor_shape const shape = call.whole_shape(call.rule->results[0]);
            auto const& part = call.results[0];
            auto const row = positions(part[part.size() - 2], shape[shape.size() - 2], x[0].device()).unsqueeze(-1);
            auto const beyond = positions(part.back(), shape.back(), x[0].device()) - row;
            auto const diagonal = static_cast<extent>(call.number("diagonal", 0));
            return x[0].masked_fill(upper ? beyond < diagonal : beyond > diagonal, 0);
        });
    };
    triangle("triu", true);
    triangle("tril", false);
}

// ---- places held in tensors

/// Returns indices for dimensions from an axis on; those before are whole.
[[nodiscard]] inline c10::List<c10::optional<at::Tensor>> indices_from(std::size_t axis, tensor_list const& places) {
    c10::List<c10::optional<at::Tensor>> all;
    for (std::size_t d = 0; d < axis; ++d) all.push_back(c10::optional<at::Tensor>());
    for (auto const& p : places) all.push_back(c10::optional<at::Tensor>(whole_number(p)));
    return all;
}

/// Returns places of several dimensions as one number each, of all of them together.
[[nodiscard]] inline at::Tensor joint_places(at::Tensor const& x, std::size_t axis, tensor_list const& places) {
    at::Tensor joint;
    for (std::size_t k = 0; k < places.size(); ++k) {
        extent const size = x.size(static_cast<extent>(axis + k));
        auto const place = places_of(places[k], size);
        joint = joint.defined() ? joint * size + place : place;
    }
    return joint;
}

/// Of equal places of an axis, the last counts. Returns which element comes to each place; -1 if none does.
[[nodiscard]] inline at::Tensor last_at(at::Tensor const& places, extent axis, tensor_shape const& shape) {
    auto number = at::arange(places.size(axis), places.options());
    for (extent d = axis + 1; d < places.dim(); ++d) number = number.unsqueeze(-1);
    return at::full(shape, -1, places.options()).scatter_reduce(axis, places, number.expand_as(places), "amax");
}

/// Returns the table's rows of ids, and zeros for ids whose row this rank does not hold. The row `padding_idx` has no
/// gradient.
[[nodiscard]] inline at::Tensor looked_up(kernel_call const& call, at::Tensor const& ids, at::Tensor const& table,
                                          found_places const& rows) {
    auto dims = ids.sizes().vec();
    dims.push_back(table.size(1));
    if (rows.is_empty) return at::zeros(dims, table.options());
    auto padding = static_cast<extent>(call.number("padding_idx", -1));
    if (auto const& held = call.operands[1][0]; held && padding >= 0) {
        auto const found = algorithm::lower_bound(*held, padding);
        padding = found != held->end() && *found == padding ? found - held->begin() : -1;
    }
    return rows.held_of(at::embedding(table, rows.place, padding));
}

/// Sums of each line's rows, times an operand's factors, or means; the row `padding_idx` does not count. Lines are rows
/// of ids, or runs that begin where an operand says.
[[nodiscard]] inline at::Tensor bags(kernel_call const& call, tensor_list const& x) {
    auto const ids = whole_number(x[0]);
    found_places const rows(call.operands[1][0], ids);
    auto vectors = looked_up(call, ids, x[1], rows);
    auto counts = at::ones(ids.sizes(), x[1].options());
    if (call.has("padding_idx"))
        counts = counts.masked_fill(ids == static_cast<extent>(call.number("padding_idx", -1)), 0);
    auto const factors = call.operand("factors");
    vectors = vectors * (factors ? counts * x[*factors] : counts).unsqueeze(-1);
    auto const begins = call.operand("offsets");
    if (!begins) {
        if (call.flag("is_mean")) vectors = vectors / counts.sum(-1).clamp_min(1).unsqueeze(-1).unsqueeze(-1);
        return vectors.sum(1);
    }
    extent const lines = call.whole_shape(call.rule->results[0])[0], all = ids.size(0);
    auto first = whole_number(x[*begins]).clamp(0, all);
    first = at::cat({first, at::full({std::max<extent>(0, lines + 1 - first.size(0))}, all, first.options())});
    auto const held = positions(call.results[0][0], lines, first.device());
    auto const begin = first.index_select(0, held), end = at::maximum(begin, first.index_select(0, held + 1));
    auto const sum = [&](at::Tensor const& of) { // the difference of two running sums, which are precise
        auto shape = of.sizes().vec();
        shape[0] = 1;
        auto const exact = of.to(at::kDouble);
        auto const before = at::cat({at::zeros(shape, exact.options()), exact}).cumsum(0);
        return (before.index_select(0, end) - before.index_select(0, begin)).to(of.options());
    };
    auto const y = sum(vectors);
    return call.flag("is_mean") ? y / sum(counts).clamp_min(1).unsqueeze(-1) : y;
}

/// Chooses elements, or moves them, by places held in a tensor.
inline void add_lookup_kernels(kernel_table& table) {
    auto const axis = [](kernel_call const& call) { return static_cast<extent>(axis_of(call)); };
    table["embedding"] = one_result([](kernel_call const& call, tensor_list const& x) {
        auto const ids = whole_number(x[0]);
        return looked_up(call, ids, x[1], found_places(call.operands[1][0], ids));
    });
    table["embedding_bag"] = one_result(bags);
    table["one_hot"] = one_result([](kernel_call const& call, tensor_list const& x) {
        auto const classes =
            positions(call.results[0].back(), call.whole_shape(call.rule->results[0]).back(), x[0].device());
        return whole_number(x[0]).unsqueeze(-1) == classes;
    });
    auto const at_places = [](kernel_call const& call, tensor_list const& x) {
        return x[0].index(indices_from(axis_of(call), {x.begin() + 1, x.end()})).reshape(call.result_shape(0));
    };
    table["index_select"] = one_result(at_places);
    /// Without operands beside the first, slices; or the places at which a mask has ones, which are as many as the
    /// result has.
    for (char const* kind : {"getitem", "index"})
        table[kind] = one_result([=](kernel_call const& call, tensor_list const& x) {
            if (x.size() < 2) return picked(call, x[0]);
            if (!call.flag("is_mask")) return at_places(call, x);
            auto const is_unset = (x[1] == 0).reshape(-1).to(at::kByte);
            auto const [unset, places] = is_unset.sort(true, 0, false); // the ones first, in their order
            auto const count = call.result_shape(0)[axis_of(call)];
            return flattened(x[0], axis_of(call), static_cast<std::size_t>(x[1].dim()))
                .index_select(axis(call), places.narrow(0, 0, count));
        });
    table["gather"] = one_result([=](kernel_call const& call, tensor_list const& x) {
        return x[0].gather(axis(call), places_of(x[1], x[0].size(axis(call))));
    });
    table["index_add"] = one_result([=](kernel_call const& call, tensor_list const& x) {
        return x[0].index_add(axis(call), places_of(x[1], x[0].size(axis(call))), x[2]);
    });
    table["scatter_add"] = one_result([=](kernel_call const& call, tensor_list const& x) {
        return x[0].scatter_add(axis(call), places_of(x[1], x[0].size(axis(call))), x[2]);
    });
    table["scatter"] = one_result([=](kernel_call const& call, tensor_list const& x) {
        auto const places = places_of(x[1], x[0].size(axis(call)));
        if (places.numel() == 0) return x[0].alias();
        auto const by = last_at(places, axis(call), x[0].sizes().vec());
        return at::where(by < 0, x[0],
                         x.size() > 2 ? x[2].gather(axis(call), by.clamp_min(0))
                                      : at::full({}, call.number("value", 0), x[0].options()));
    });
    table["index_put"] = one_result([](kernel_call const& call, tensor_list const& x) {
        std::size_t const first = axis_of(call);
        tensor_list const indices(x.begin() + 1, x.end() - 1);
        auto const place = joint_places(x[0], first, indices);
        auto const whole = flattened(x[0], first, indices.size());
        auto const put = flattened(x.back(), first, static_cast<std::size_t>(place.dim()));
        auto const along = static_cast<extent>(first);
        auto const places = place.reshape(-1);
        if (places.numel() == 0) return x[0].alias();
        if (call.flag("accumulate")) return whole.index_add(along, places, put).reshape(x[0].sizes());
        auto by = last_at(places, 0, {whole.size(along)});
        auto const values = put.index_select(along, by.clamp_min(0));
        for (extent d = along + 1; d < whole.dim(); ++d) by = by.unsqueeze(-1);
        return at::where(by < 0, whole, values).reshape(x[0].sizes());
    });
}

// ---- routing

/// Routes each token to the one or two experts of largest probability, first come first served; see the reference
/// kernel. The results are the dispatch and the combine mask.
[[nodiscard]] inline operator_kernel routing_kernel(int choices) {
    return {[=](kernel_call const& call, tensor_list const& x) -> tensor_list {
        auto const probabilities = at::softmax(at::matmul(x[0], x[1]), -1); // batch rows, tokens, experts
        extent const experts = x[1].size(1), capacity = call.result_shape(0)[3];
        auto const expert = at::arange(experts, x[0].options().dtype(at::kLong)),
                   slot = at::arange(capacity, expert.options());
        auto rest = probabilities.detach();
        at::Tensor used = at::zeros({x[0].size(0), 1, experts}, expert.options()), dispatch, combine, sum;
        for (int rank = 0; rank < std::min<extent>(choices, experts); ++rank) {
            auto const chosen = rest.argmax(-1, true) == expert;
            rest = rest.masked_fill(chosen, -1);
            auto const weight = (probabilities * chosen).sum(-1, true);
            sum = sum.defined() ? sum + weight : weight;
            auto const counts = chosen.to(at::kLong);
            auto const at_slot = counts.cumsum(1) - 1 + used;
            used = used + counts.sum(1, true);
            auto const taken = chosen.unsqueeze(-1).logical_and(at_slot.unsqueeze(-1) == slot);
            auto const weighed = taken * weight.unsqueeze(-1);
            dispatch = dispatch.defined() ? dispatch.logical_or(taken) : taken;
            combine = combine.defined() ? combine + weighed : weighed;
        }
        if (choices > 1) combine = combine / sum.unsqueeze(-1);
        return {dispatch, combine};
    }};
}

/// Runs of rows, each times a matrix of its own; the third operand holds where the runs end. The host reads the ends,
/// because sizes of products follow from them.
[[nodiscard]] inline at::Tensor grouped_product(kernel_call const& call, tensor_list const& x) {
    refuse_recording(call, "multiplies runs of rows that end where its operand says");
    auto const ends = whole_number(x[2]).to(at::kCPU).contiguous();
    auto const &rows = call.operands[0][0], &matrices = call.operands[1][0];
    extent const all = std::min<extent>(ends.numel(), call.whole_shape(call.rule->operands[1])[0]);
    extent const count = x[0].size(0);
    auto const zeros = [&](extent size) { return at::zeros({size, x[1].size(2)}, x[0].options()); };
    tensor_list products;
    extent first = 0;
    for (extent m = 0; m < all; ++m) {
        auto const end = ends.accessor<std::int64_t, 1>()[m];
        extent const after = std::max(
            first,
            std::min(count, rows ? static_cast<extent>(algorithm::lower_bound(*rows, end) - rows->begin()) : end));
        auto place = m;
        if (matrices) {
            auto const found = algorithm::lower_bound(*matrices, m);
            place = found != matrices->end() && *found == m ? found - matrices->begin() : -1;
        }
        if (after > first)
            products.push_back(place < 0 ? zeros(after - first)
                                         : x[0].narrow(0, first, after - first).matmul(x[1].select(0, place)));
        first = after;
    }
    products.push_back(zeros(count - first));
    return at::cat(products, 0);
}

/// Tokens through the experts chosen for them; see the reference kernel. The host reads how many each expert has.
[[nodiscard]] inline at::Tensor routed_experts(kernel_call const& call, tensor_list const& x) {
    if (!call.destinations.of.empty()) call.fail("sends rows to other ranks, which no kernel of libtorch does yet");
    auto const function = heddle::detail::expert_activations.at(static_cast<std::size_t>(call.number("activation", 0)));
    auto const activated = [&](at::Tensor const& t) {
        return function == "silu"      ? at::silu(t)
               : function == "gelu"    ? at::gelu(t, call.flag("approximate") ? "tanh" : "none")
               : function == "relu"    ? at::relu(t)
               : function == "sigmoid" ? at::sigmoid(t)
                                       : at::tanh(t);
    };
    double const alpha = call.number("alpha", 1), offset = call.number("offset", 0),
                 limit = call.number("limit", std::numeric_limits<double>::infinity());
    auto const product = [&](at::Tensor const& rows, std::size_t k, char const* bias, extent place) {
        auto const y = rows.matmul(x[k].select(0, place));
        auto const added = call.operand(bias);
        return added ? y + x[*added].select(0, place) : y;
    };
    /// What one of the held experts makes of rows.
    auto const expert = [&](at::Tensor const& rows, extent place) {
        auto const made = product(rows, 3, "up_bias", place);
        auto const halves = !call.flag("gated")        ? std::vector{made}
                            : call.flag("interleaved") ? made.reshape({made.size(0), made.size(1) / 2, 2}).unbind(2)
                                                       : made.chunk(2, 1);
        auto inside = activated(alpha * halves[0].clamp_max(limit)) / alpha;
        if (halves.size() > 1) inside = inside * (halves[1].clamp(-limit, limit) + offset);
        return product(inside, 4, "down_bias", place);
    };
    refuse_recording(call, "has as many rows for each expert as its operand says");
    auto const ids = whole_number(x[1]), weights = x[2].reshape(-1);
    auto const& held = call.operands[3][0];
    at::Tensor y = at::zeros({x[0].size(0), x[4].size(2)}, x[0].options());
    for (extent place = 0; place < x[3].size(0); ++place) {
        auto const chosen = (ids == (held ? (*held)[static_cast<std::size_t>(place)] : place)).nonzero();
        auto const tokens = chosen.select(1, 0);
        auto const weight = weights.index_select(0, tokens * ids.size(1) + chosen.select(1, 1));
        y = y.index_add(0, tokens, expert(x[0].index_select(0, tokens), place) * weight.unsqueeze(-1));
    }
    return y;
}

inline void add_routing_kernels(kernel_table& table) {
    table["routed_experts"] = one_result(routed_experts);
    table["top_2_gating"] = routing_kernel(2);
    table["switch_gating"] = routing_kernel(1);
    table["grouped_mm"] = one_result(grouped_product);
    table["histc"] = one_result([](kernel_call const& call, tensor_list const& x) {
        extent const bins = call.whole_shape(call.rule->results[0])[0];
        double const low = call.number("min", 0), high = call.number("max", 1);
        auto const values = x[0].detach().reshape(-1).to(at::kDouble);
        auto const is_counted = (values >= low).logical_and(values <= high);
        auto const bin =
            whole_number(
                ((values - low) / (high - low) * static_cast<double>(bins)).masked_fill(is_counted.logical_not(), 0))
                .clamp_max(bins - 1);
        return at::zeros({bins}, values.options())
            .index_add(0, bin, is_counted.to(at::kDouble))
            .index_select(0, positions(call.results[0][0], bins, x[0].device()));
    });
}

} // namespace heddle::libtorch::detail
