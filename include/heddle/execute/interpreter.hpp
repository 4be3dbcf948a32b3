// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a plan on one rank: forward, then backward by transposing the distributed program.
///
/// The cotangent of a tensor held in some form is held in the dual form, so every instruction's adjoint
/// follows from its two forms.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Executes plans on one rank of a communicator.
///
/// *Preconditions.* The plan is one of the program (`verify` accepts it), for as many devices as there are
/// ranks; every rank runs the same plan. Keeps references to all it is given.
template <class Scalar, communicator_of<Scalar> Communicator, kernel_backend<Scalar> Backend>
class interpreter {
public:
    using tensor = dense_tensor<Scalar>;

    interpreter(program const& p, indexed_program const& indexed, plan const& what, Communicator& communicator, Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), plan_(what), communicator_(communicator), backend_(backend), seed_(seed) {
        for (auto const& cut : what.cuts)
            for (auto const& m : cut.members) cut_of_[m] = &cut;
    }

    /// One iteration: the loss and the parameters' gradients.
    [[nodiscard]] iteration_result<Scalar> run(source_values<Scalar> const& sources) {
        values_.clear();
        cotangents_.clear();
        result_ = {};
        for (auto const& s : plan_.steps) forward(s.instruction, sources);
        seed_loss();
        for (auto s = plan_.steps.rbegin(); s != plan_.steps.rend(); ++s) backward(s->instruction);
        return std::move(result_);
    }

private:
    using key = std::pair<tensor_id, std::uint16_t>;
    static key at(tensor_id t, form f) { return {t, f.code()}; }

    // ---- shards

    /// Places of a factor that each rank holds.
    [[nodiscard]] std::vector<extent> places(tensor_id t, form f) const {
        auto const& cut = *cut_of_.at({t, f.factor()});
        extent const unit = factor_of(t, f).extent / cut.atoms;
        std::vector<extent> counts;
        for (extent c : cut.counts) counts.push_back(c * unit);
        return counts;
    }
    [[nodiscard]] factor const& factor_of(tensor_id t, form f) const { return indexed_.tensors[t].factors[static_cast<std::size_t>(f.factor())]; }
    [[nodiscard]] static extent begin_of(std::vector<extent> const& counts, std::size_t rank) {
        return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), extent{0});
    }
    [[nodiscard]] shape const& whole_shape(tensor_id t) const { return indexed_.tensors[t].info.shape; }

    /// Elements of each rank's shard.
    [[nodiscard]] std::vector<std::size_t> shard_sizes(tensor_id t, form f) const {
        std::vector<std::size_t> sizes;
        for (extent c : places(t, f)) sizes.push_back(static_cast<std::size_t>(count_elements(part_shape(whole_shape(t), factor_of(t, f), c))));
        return sizes;
    }
    [[nodiscard]] tensor cut(tensor_id t, form f, tensor const& whole) const {
        auto const counts = places(t, f);
        return take(whole, factor_of(t, f), begin_of(counts, communicator_.rank()), counts[communicator_.rank()]);
    }
    [[nodiscard]] tensor padded(tensor_id t, form f, tensor const& part) const {
        auto const counts = places(t, f);
        return pad(part, whole_shape(t), factor_of(t, f), begin_of(counts, communicator_.rank()), counts[communicator_.rank()]);
    }

    // ---- collectives on tensors; shards of a factor travel one after the other

    [[nodiscard]] tensor reduced(tensor t) {
        communicator_.all_reduce(std::span<Scalar>(t.data));
        return t;
    }
    [[nodiscard]] tensor gathered(tensor_id t, form f, tensor const& part) {
        auto const counts = places(t, f);
        auto const sizes = shard_sizes(t, f);
        tensor flat(shape{count_elements(whole_shape(t))});
        communicator_.all_gather_v(std::span<Scalar const>(part.data), std::span<Scalar>(flat.data), sizes, uneven::padded);
        tensor whole(whole_shape(t));
        auto from = flat.data.begin();
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const next = from + static_cast<std::ptrdiff_t>(sizes[r]);
            tensor const piece(part_shape(whole.dims, factor_of(t, f), counts[r]), std::vector<Scalar>(from, next));
            put(whole, factor_of(t, f), begin_of(counts, r), counts[r], piece);
            from = next;
        }
        return whole;
    }
    [[nodiscard]] tensor scattered(tensor_id t, form f, tensor const& whole) {
        auto const counts = places(t, f);
        auto const sizes = shard_sizes(t, f);
        std::vector<Scalar> flat;
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const piece = take(whole, factor_of(t, f), begin_of(counts, r), counts[r]);
            flat.insert(flat.end(), piece.data.begin(), piece.data.end());
        }
        tensor part(part_shape(whole_shape(t), factor_of(t, f), counts[communicator_.rank()]));
        communicator_.reduce_scatter_v(std::span<Scalar const>(flat), std::span<Scalar>(part.data), sizes, uneven::padded);
        return part;
    }
    /// A factor of a tensor of which `count` places of another factor are held.
    [[nodiscard]] static factor within(factor f, factor const& other, extent count) {
        if (other.dimension == f.dimension && other.stride < f.stride) f.stride = f.stride / other.extent * count;
        return f;
    }
    [[nodiscard]] tensor exchanged(tensor_id t, form from, form to, tensor const& part) {
        auto const rank = communicator_.rank();
        auto const &f = factor_of(t, from), &g = factor_of(t, to);
        auto const before = places(t, from), after = places(t, to);
        std::vector<std::size_t> send_sizes, receive_sizes;
        std::vector<Scalar> send;
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const piece = part.data.empty() ? tensor(shape{0}) : take(part, within(g, f, before[rank]), begin_of(after, r), after[r]);
            send_sizes.push_back(piece.data.size());
            send.insert(send.end(), piece.data.begin(), piece.data.end());
            auto const theirs = part_shape(whole_shape(t), f, before[r]);
            bool const nothing = before[r] == 0;
            receive_sizes.push_back(nothing ? 0 : static_cast<std::size_t>(count_elements(part_shape(theirs, within(g, f, before[r]), after[rank]))));
        }
        tensor result(part_shape(whole_shape(t), g, after[rank]));
        std::vector<Scalar> receive(result.data.size());
        communicator_.all_to_all_v(std::span<Scalar const>(send), send_sizes, std::span<Scalar>(receive), receive_sizes);
        auto at = receive.begin();
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const local = within(f, g, after[rank]);
            auto const next = at + static_cast<std::ptrdiff_t>(receive_sizes[r]);
            if (at != next) put(result, local, begin_of(before, r), before[r], tensor(part_shape(result.dims, local, before[r]), std::vector<Scalar>(at, next)));
            at = next;
        }
        return result;
    }
    [[nodiscard]] tensor scaled(tensor t) const {
        t *= Scalar{1} / static_cast<Scalar>(communicator_.size());
        return t;
    }

    // ---- forward

    void forward(instruction const& i, source_values<Scalar> const& sources) {
        switch (i.what) {
        case instruction::kind::read: {
            auto const& whole = sources.at(i.tensor);
            values_[at(i.tensor, i.to)] = i.to.is_shard() ? cut(i.tensor, i.to, whole) : i.to == form::partial() ? scaled(whole) : whole;
            break;
        }
        case instruction::kind::convert: values_[at(i.tensor, i.to)] = convert(i.tensor, i.from, i.to, values_.at(at(i.tensor, i.from))); break;
        case instruction::kind::compute: {
            auto results = backend_.forward(call(i), operands(i));
            for (std::size_t k = 0; k < results.size(); ++k) values_[at(program_.results(i.op)[k], i.results[k])] = std::move(results[k]);
            break;
        }
        }
    }

    [[nodiscard]] tensor convert(tensor_id t, form from, form to, tensor const& value) {
        if (to == form::partial()) return scaled(value);
        if (from == form::partial()) return to.is_shard() ? scattered(t, to, value) : reduced(value);
        if (from.is_shard()) return to.is_shard() ? exchanged(t, from, to, value) : gathered(t, from, value);
        return to.is_shard() ? cut(t, to, value) : value;
    }

    [[nodiscard]] kernel_call call(instruction const& i) const {
        if (i.loop < 0) return whole_call(program_, i.op, seed_);
        auto const& loop = indexed_.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
        auto const find_part = [&]() -> std::pair<extent, extent> {
            auto const part = [&](tensor_id t, form f) {
                auto const counts = places(t, f);
                return std::pair(begin_of(counts, communicator_.rank()), counts[communicator_.rank()]);
            };
            for (std::size_t k = 0; k < i.operands.size(); ++k)
                if (i.operands[k].is_shard()) return part(program_.operands(i.op)[k], i.operands[k]);
            for (std::size_t k = 0; k < i.results.size(); ++k)
                if (i.results[k].is_shard()) return part(program_.results(i.op)[k], i.results[k]);
            return {0, loop.extent};
        };
        auto const [begin, count] = find_part();
        return split_call(program_, indexed_, i.op, loop, begin, count, seed_);
    }

    [[nodiscard]] std::vector<tensor const*> operands(instruction const& i) const {
        std::vector<tensor const*> result;
        for (std::size_t k = 0; k < i.operands.size(); ++k) result.push_back(&values_.at(at(program_.operands(i.op)[k], i.operands[k])));
        return result;
    }

    // ---- backward

    void seed_loss() {
        tensor_id const t = program_.loss();
        bool const is_partial = values_.contains(at(t, form::partial()));
        form const f = is_partial ? form::partial() : form::mirrored();
        auto loss = values_.at(at(t, f));
        result_.loss = (is_partial ? reduced(std::move(loss)) : loss)[0];
        cotangents_[at(t, f)] = tensor(whole_shape(t), Scalar{1});
    }

    void accumulate(tensor_id t, form f, tensor value) {
        auto const [slot, is_new] = cotangents_.try_emplace(at(t, f));
        if (is_new) slot->second = std::move(value);
        else slot->second += value;
    }

    void backward(instruction const& i) {
        switch (i.what) {
        case instruction::kind::read: return finish_gradient(i);
        case instruction::kind::convert:
            if (auto const found = cotangents_.find(at(i.tensor, i.to)); found != cotangents_.end())
                accumulate(i.tensor, i.from, transpose(i.tensor, i.from, i.to, found->second));
            return;
        case instruction::kind::compute: break;
        }
        std::vector<tensor const*> results, cotangents;
        bool any = false;
        for (std::size_t k = 0; k < i.results.size(); ++k) {
            auto const place = at(program_.results(i.op)[k], i.results[k]);
            results.push_back(&values_.at(place));
            auto const found = cotangents_.find(place);
            cotangents.push_back(found == cotangents_.end() ? nullptr : &found->second);
            any |= cotangents.back() != nullptr;
        }
        if (!any) return;
        auto gradients = backend_.backward(call(i), operands(i), results, cotangents);
        for (std::size_t k = 0; k < gradients.size(); ++k) {
            tensor_id const t = program_.operands(i.op)[k];
            if (gradients[k] && indexed_.tensors[t].has_cotangent) accumulate(t, i.operands[k], std::move(*gradients[k]));
        }
    }

    /// The adjoint of a conversion, on cotangents in the dual forms.
    [[nodiscard]] tensor transpose(tensor_id t, form from, form to, tensor const& cotangent) {
        if (from.is_shard()) {
            if (to.is_shard()) return exchanged(t, to, from, cotangent);
            return to == form::replicated() ? scattered(t, from, cotangent) : cut(t, from, cotangent);
        }
        if (to.is_shard()) return from == form::replicated() ? padded(t, to, cotangent) : gathered(t, to, cotangent);
        // Between whole forms: summands where the value is replicated, the whole cotangent elsewhere.
        if (from == form::replicated()) return scaled(cotangent);
        return to == form::replicated() ? reduced(cotangent) : cotangent;
    }

    void finish_gradient(instruction const& i) {
        if (!indexed_.tensors[i.tensor].has_cotangent) return;
        auto const found = cotangents_.find(at(i.tensor, i.to));
        bool const is_whole = !i.to.is_shard();
        tensor gradient = found != cotangents_.end() ? std::move(found->second) : is_whole ? tensor(whole_shape(i.tensor)) : cut(i.tensor, i.to, tensor(whole_shape(i.tensor)));
        if (i.to == form::replicated()) gradient = reduced(std::move(gradient));
        result_.gradients.insert_or_assign(i.tensor, std::pair(is_whole ? form::replicated() : i.to, std::move(gradient)));
    }

    program const& program_;
    indexed_program const& indexed_;
    plan const& plan_;
    Communicator& communicator_;
    Backend const& backend_;
    std::uint64_t seed_;
    std::map<cut_factor, atom_class const*> cut_of_;
    std::map<key, tensor> values_, cotangents_;
    iteration_result<Scalar> result_;
};

} // namespace heddle
