// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The calls of operators on what one rank has of one micro-batch.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/rank_tensors.hpp>
#include <heddle/execute/detail/row_exchange.hpp>
#include <heddle/execute/detail/run_operator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/instruction.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Makes the calls of a rank's operators in a micro-batch; they refer to it, and to what it is made of.
template <rank_tensor Tensor, communicator_of<typename Tensor::scalar_type> Communicator>
class operator_calls {
public:
    using tensors = rank_tensors<Tensor, Communicator>;
    using state = micro_batch_state<Tensor, typename tensors::exchange::request>;

    /// `whole` is the program of the whole batch, and `range` the micro-batch's first place and the number of its
    /// places.
    operator_calls(program const& p, indexed_program const& whole, rank_program const& what,
                   std::pair<extent, extent> range, tensors& here, state& mine)
        : program_(p), whole_(whole), split_(what.parts > 1 ? &what.split : nullptr), range_(range), here_(here),
          mine_(mine) {}

    /// Returns the call that runs an operator on all of the micro-batch.
    [[nodiscard]] tensor_call<Tensor> of_part(operator_id o, std::uint64_t seed) const {
        tensor_call<Tensor> result = whole_call(program_, o, seed);
        if (auto const number = batch_loop(o); number >= 0) {
            auto const& loop = whole_.operators[o].loops[static_cast<std::size_t>(number)];
            split_call(result, program_, whole_, o, loop, range_.first, range_.second);
        }
        return result;
    }

    /// Returns the call that runs an instruction on what this rank has.
    [[nodiscard]] tensor_call<Tensor> of(instruction::compute const& i) const {
        auto result = of_part(i.op, 0);
        auto const& op = whole_.operators[i.op];
        bool has_statistics = false;
        auto const split_along = [&](std::int16_t number, std::pair<extent, extent> range) {
            auto const& loop = op.loops[static_cast<std::size_t>(number)];
            split_call(result, program_, whole_, i.op, loop, range.first, range.second);
            has_statistics = has_statistics || detail::has_statistics(loop);
        };
        if (i.loop >= 0 && op.loops[static_cast<std::size_t>(i.loop)].exchanges()) {
            exchange_rows(result, i);
        } else if (i.loop >= 0) {
            std::pair<extent, extent> range{
                0, here_.indexed.operators[i.op].loops[static_cast<std::size_t>(i.loop)].extent};
            find_tensor(i, [&](tensor_id t, tensor_form f) {
                if (!f.is_shard()) return false;
                auto const counts = here_.layout.places(t, f);
                range = {here_.layout.begin_of(counts, here_.rank()), counts[here_.rank()]};
                return true;
            });
            if (i.loop == batch_loop(i.op)) range.first += range_.first;
            split_along(i.loop, range);
        }
        if (here_.is_split_inside(i.op))
            find_tensor(i, [&](tensor_id t, tensor_form f) {
                if (here_.inside.is_cut(t)) split_along(op.inside_loop, here_.inside.range(t, f));
                return here_.inside.is_cut(t);
            });
        if (has_statistics)
            result.combine = [all = *this, &i](std::size_t which, reduction how, Tensor& rows) {
                combine_once(all.mine_, i.op, which, rows, [&](Tensor& mine) { all.combine(i, how, mine); });
            };
        return result;
    }

private:
    /// Returns the loop along which an operator runs on a part of the batch, or -1.
    [[nodiscard]] std::int16_t batch_loop(operator_id o) const {
        return split_ ? split_->computations[o].loop : std::int16_t{-1};
    }

    /// Calls `visit(tensor, form)` for the operands and results of a computation, until it returns true.
    template <class Visit>
    void find_tensor(instruction::compute const& i, Visit&& visit) const {
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (visit(program_.operands(i.op)[k], i.operands[k])) return;
        for (std::size_t k = 0; k < i.results.size(); ++k)
            if (visit(program_.results(i.op)[k], i.results[k])) return;
    }

    /// Lets a computation send rows to the ranks that have what they choose. There are no groups then.
    void exchange_rows(tensor_call<Tensor>& call, instruction::compute const& i) const {
        auto const& op = whole_.operators[i.op];
        auto const& loop = op.loops[static_cast<std::size_t>(i.loop)];
        auto const of_batch = batch_loop(i.op);
        bool const divides_batch =
            of_batch >= 0 && op.loops[static_cast<std::size_t>(of_batch)].operands == sides_of(loop).first.operands;
        split_exchange(call, program_, whole_, i, loop, here_.layout, here_.rank(), divides_batch ? range_.first : 0);
        call.send = [all = *this, &i](std::size_t which, Tensor const& rows, shard_counts sent, shard_counts received) {
            auto& known = all.mine_.statistics;
            all.here_.across.count_as(all.program_.results(i.op)[0]);
            if (auto const found = known.find({i.op, which}); found != known.end()) return found->second;
            return known.try_emplace({i.op, which}, exchanged(all.here_.communicator, rows, sent, received))
                .first->second;
        };
    }

    /// Combines the statistics of rows over all that hold parts of the rows. In a group, the first device combines
    /// across groups the statistics of its own rows and of the others'.
    void combine(instruction::compute const& i, reduction how, Tensor& mine) const {
        auto const& op = whole_.operators[i.op];
        auto& inside = here_.inside;
        bool const is_alone = here_.across.is_alone(program_.results(i.op)[0]);
        bool const across = i.loop >= 0 && has_statistics(op.loops[static_cast<std::size_t>(i.loop)]);
        bool const splits_inside = here_.is_split_inside(i.op);
        bool const is_inside = splits_inside && has_statistics(op.loops[static_cast<std::size_t>(op.inside_loop)]);
        auto const reduce_across = [&](Tensor& all) {
            if (!is_alone && inside.is_first()) here_.communicator.all_reduce(all.flat(), how);
        };
        if (is_inside) inside.all_reduce(mine.flat(), how);
        if (across && splits_inside && !is_inside) {
            std::vector<std::size_t> counts;
            find_tensor(i, [&](tensor_id t, tensor_form f) {
                if (inside.is_cut(t)) counts = inside.counts_like(t, f, static_cast<std::size_t>(mine.elements()));
                return inside.is_cut(t);
            });
            auto all = inside.to_first(mine, counts);
            reduce_across(all);
            inside.from_first(all, mine, counts);
        } else if (across) {
            reduce_across(mine);
            if (inside.is_group()) inside.broadcast(mine.flat());
        }
    }

    program const& program_;
    indexed_program const& whole_;
    batch_split const* split_;
    std::pair<extent, extent> range_;
    tensors& here_;
    state& mine_;
};

} // namespace heddle::detail
