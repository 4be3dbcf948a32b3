// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A module of libtorch's C++ frontend on one rank of a plan, for training loops and optimisers that exist.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/libtorch/tensor.hpp>
#include <heddle/program/program.hpp>

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::libtorch {

/// Ties the parameters of a module to those of its program on one rank. In the module, each is what the rank stores of
/// it: an optimiser that steps elements by themselves, as those of `torch::optim` do but for LBFGS, steps parts as it
/// would step the whole.
///
/// `Rank` is an `interpreter` of the program that computes on `tensor<Scalar>`. References to all arguments are kept.
template <class Scalar, class Rank>
class module_rank {
public:
    /// Leaves of each parameter and buffer what the rank stores. All ranks have equal values before.
    /// *Throws* `input_error` if the module lacks a parameter of the program, or has it in another type than `Scalar`.
    module_rank(torch::nn::Module& module, program const& p, Rank& rank) : program_(p), rank_(rank) {
        auto const parameters = module.named_parameters(), buffers = module.named_buffers();
        for (tensor_id t = 0; t < p.tensor_count(); ++t) {
            auto const& info = p.tensor(t);
            if (info.role == tensor_role::input && p.data_of(t) == t) inputs_.emplace(info.name, t);
            if (info.role != tensor_role::parameter && info.role != tensor_role::buffer) continue;
            auto const* found = parameters.find(info.name);
            if (!found) found = buffers.find(info.name);
            if (!found) throw input_error("'" + info.name + "'", "is no parameter or buffer of the module");
            auto const placed = rank.place({{t, tensor<Scalar>(*found).on_host()}});
            if (placed.empty()) continue; // another rank's
            if (info.role == tensor_role::parameter) {
                at::Tensor mine = *found;
                if (mine.scalar_type() != tensor<Scalar>::options().dtype())
                    throw input_error("'" + info.name + "'", "is not of the type that is computed with");
                mine.set_data(placed.at(t).value());
                mine.mutable_grad().reset();
                parameters_.emplace(t, mine);
            } else {
                buffers_.emplace(t, placed.at(t));
            }
        }
    }

    /// Runs one iteration on inputs, by name, which are whole on every rank. Returns the loss, and leaves in each
    /// parameter the gradient of what the rank stores of it. All ranks call it. *Throws* `input_error` for an input
    /// that the program lacks, and what `interpreter::run` throws.
    Scalar run(std::vector<std::pair<std::string, at::Tensor>> const& inputs) {
        auto sources = buffers_;
        for (auto const& [name, value] : inputs) {
            auto const found = inputs_.find(name);
            if (found == inputs_.end()) throw input_error("'" + name + "'", "is no input of the program");
            for (auto& placed : rank_.place({{found->second, tensor<Scalar>(value).on_host()}})) sources.insert(placed);
        }
        for (auto const& [t, parameter] : parameters_) sources.emplace(t, tensor<Scalar>(parameter));
        rank_.reseed(iterations_++);
        auto result = rank_.run(sources);
        for (auto& [t, gradient] : result.gradients) parameters_.at(t).mutable_grad() = gradient.second.value();
        return rank_.whole_loss(result);
    }

    /// Makes parameters whole again on every rank that has some of them. All ranks call it, of a plan that is no
    /// pipeline; then the module is an ordinary one.
    void make_whole() {
        for (auto& [t, parameter] : parameters_) {
            parameter.set_data(rank_.gather(t, tensor<Scalar>(parameter)).value());
            parameter.mutable_grad().reset();
        }
    }

private:
    program const& program_;
    Rank& rank_;
    std::map<std::string, tensor_id> inputs_;
    std::map<tensor_id, at::Tensor> parameters_;
    tensor_values<tensor<Scalar>> buffers_;
    std::uint64_t iterations_ = 0;
};

} // namespace heddle::libtorch
