// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How a rank's gradients of parameters become those of all ranks, one by one or in buckets.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/rank_tensors.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/theory/product_form.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::detail {

/// Returns how a step's shards move, which is padded if nothing is said.
[[nodiscard]] inline uneven way_of(transfer_list const& transfers) {
    return transfers.empty() ? uneven::padded : transfers[0].how.value_or(uneven::padded);
}

template <rank_tensor Tensor, class Request>
using arriving_list = arriving<std::vector<held<Tensor>>, Request>;
/// Returns one of several tensors that arrive together.
template <rank_tensor Tensor, class Request>
[[nodiscard]] arriving<held<Tensor>, Request> one_of(std::shared_ptr<arriving_list<Tensor, Request>> const& all,
                                                     std::size_t k) {
    return {Request{}, [all, k] { return std::move(all->get()[k]); }};
}

/// The gradients of an iteration. Cotangents are taken from, and put into, those that a rank has once. It keeps
/// references to what it is given.
template <rank_tensor Tensor, ranks_of_plan<typename Tensor::scalar_type> Ranks>
class gradient_sums {
    using tensors_of_rank = rank_tensors<Tensor, Ranks>;
    using request = typename tensors_of_rank::exchange::request;
    using slots = form_slots<slot<Tensor, request>, product_form>;

public:
    gradient_sums(rank_program const& what, tensors_of_rank& of, slots& cotangents)
        : what_(what), of_(of), cotangents_(cotangents) {}

    /// Tells whether a step's gradient is reduced with others.
    [[nodiscard]] bool is_in_bucket(std::size_t step) const {
        return what_.bucket_of_step[step] != rank_program::no_bucket;
    }
    /// Starts to reduce the gradient of a parameter whose copies on the outermost axis are added up, unless its bucket
    /// does. Of other parameters a part may still be in a bucket.
    void read(std::size_t step, plan_step const& s) {
        tensor_id const t = s.instruction.change()->tensor;
        if (!of_.has_cotangent(t) || s.to()[0] != tensor_form::replicated() || is_in_bucket(step)) return;
        reduced_[t] = gradient(t, s, way_of(s.step.deferred_transfers));
    }
    /// Reduces the gradients of a bucket by one collective, if this was its last step.
    void passed(std::size_t step) {
        if (!is_in_bucket(step) || !of_.inside.is_first()) return;
        auto const& bucket = what_.buckets[what_.bucket_of_step[step]];
        if (bucket.steps.back() != step) return;
        std::vector<tensor_id> tensors;
        std::vector<tensor_form> forms;
        std::vector<held<Tensor>> gradients;
        for (auto n : bucket.steps) {
            auto const& s = std::get<plan_step>(what_.steps[n]);
            auto const t = s.instruction.change()->tensor;
            auto value = take(t, s.to());
            auto form = s.to().with(0, s.from()[0]);
            if (is_added_last(s)) { // what axes inside add up is there before
                value = std::move(of_.gradient_inside(t, s.from(), form, std::move(value)).get());
                form = s.from();
            }
            tensors.push_back(of_.outermost().layout.view(t, form));
            forms.push_back(form[0]);
            gradients.push_back(std::move(value));
        }
        auto& across = of_.outermost().over;
        auto const& transfers = std::get<plan_step>(what_.steps[bucket.steps.front()]).step.deferred_transfers;
        auto const sent = through(of_.outermost().ranks, lane::parameters, [&] {
            return transfers[0].kind == collective::all_reduce
                       ? across.reduced_together(tensors, std::move(gradients))
                       : across.scattered_together(tensors, forms, std::move(gradients), way_of(transfers));
        });
        for (std::size_t k = 0; k < tensors.size(); ++k) {
            auto const& s = std::get<plan_step>(what_.steps[bucket.steps[k]]);
            auto const t = s.instruction.change()->tensor;
            if (!s.instruction.template is<instruction::read>()) accumulate(cotangents_, t, s.from(), one_of(sent, k));
            else if (is_added_last(s)) reduced_[t] = one_of(sent, k);
            else reduced_[t] = added_inside(t, s, one_of(sent, k));
        }
    }
    /// Starts what is still to be done for the gradient of a parameter.
    void start(plan_step const& s) {
        tensor_id const t = s.instruction.change()->tensor;
        if (!reduced_.contains(t) && of_.inside.is_first()) reduced_[t] = gradient(t, s, uneven::padded);
    }
    /// Waits for a gradient, and gives it to all devices of the group.
    [[nodiscard]] Tensor finish(tensor_id t, product_form const& stored) {
        auto const found = reduced_.find(t);
        Tensor gradient = found != reduced_.end() ? std::move(found->second.get()).release()
                                                  : Tensor(of_.layout.held_shape(t, stored));
        of_.outermost().over.count_as(t);
        return of_.inside.is_group() ? of_.inside.broadcast(std::move(gradient)) : gradient;
    }
    void clear() { reduced_.clear(); }

private:
    /// Tells whether the outermost axis adds up the gradient of what was read once the axes inside have done their
    /// part.
    [[nodiscard]] static bool is_added_last(plan_step const& s) {
        return s.instruction.template is<instruction::read>() && s.from()[0] == s.to()[0];
    }
    /// Returns the gradient of what was read, of which the outermost axis has cut its part.
    [[nodiscard]] typename tensors_of_rank::arriving_tensor added_inside(
        tensor_id t, plan_step const& read, typename tensors_of_rank::arriving_tensor cut) {
        auto const shared = std::make_shared<typename tensors_of_rank::arriving_tensor>(std::move(cut));
        return {request{}, [this, t, &read, shared] {
                    auto const form = read.to().with(0, read.from()[0]);
                    return std::move(of_.gradient_inside(t, read.from(), form, std::move(shared->get())).get());
                }};
    }
    [[nodiscard]] typename tensors_of_rank::arriving_tensor gradient(tensor_id t, plan_step const& read, uneven how) {
        return of_.gradient(t, read.from(), read.to(), take(t, read.to()), how);
    }
    /// Returns this rank's gradient of a parameter in the form in which it was used; it is zero if nothing was
    /// differentiated with respect to it.
    [[nodiscard]] held<Tensor> take(tensor_id t, product_form const& f) {
        auto taken = cotangents_.take(t, f);
        return taken ? std::move(taken->get()) : held<Tensor>(Tensor(of_.layout.held_shape(t, f)));
    }

    rank_program const& what_;
    tensors_of_rank& of_;
    slots& cotangents_;
    std::map<tensor_id, typename tensors_of_rank::arriving_tensor> reduced_;
};

} // namespace heddle::detail
