// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The optimiser that is asked for, behind one type.
#pragma once

#include "../commands.hpp"

#include <heddle/execute/mixed_precision.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace heddle::cli {

/// A `master_optimizer` of whatever rule is asked for: the training loop is compiled once for all rules.
template <class Tensor>
class parameter_steps {
public:
    using wide = wide_of<Tensor>;
    using moments_of = std::map<tensor_id, std::vector<wide>>;

    virtual ~parameter_steps() = default;
    virtual void set(tensor_id t, wide weights, tensor_values<Tensor>& parameters) = 0;
    [[nodiscard]] virtual wide const& weights(tensor_id t, tensor_values<Tensor> const& parameters) const = 0;
    virtual void step(tensor_values<Tensor>& parameters, gradients_of<Tensor> const& gradients,
                      host_number<Tensor> factor) = 0;
    [[nodiscard]] virtual std::uint64_t steps() const = 0;
    [[nodiscard]] virtual std::size_t moment_count() const = 0;
    [[nodiscard]] virtual moments_of const& moments() const = 0;
    virtual void resume(std::uint64_t steps, moments_of moments) = 0;

    template <class Rule>
    [[nodiscard]] static std::unique_ptr<parameter_steps> by(Rule rule);
    [[nodiscard]] static std::unique_ptr<parameter_steps> asked_for(train_arguments const& a) {
        adam const moments{.rate = a.rate.value_or(adam{}.rate)};
        if (a.optimizer == "adam") return by(moments);
        if (a.optimizer == "adamw") return by(adamw{.rule = moments, .decay = a.decay});
        return by(sgd{.rate = a.rate.value_or(sgd{}.rate), .momentum = a.momentum});
    }
};

template <class Tensor>
template <class Rule>
std::unique_ptr<parameter_steps<Tensor>> parameter_steps<Tensor>::by(Rule rule) {
    class of_rule : public parameter_steps {
    public:
        explicit of_rule(Rule r) : optimizer_(std::move(r)) {}
        void set(tensor_id t, wide weights, tensor_values<Tensor>& parameters) override {
            optimizer_.set(t, std::move(weights), parameters);
        }
        [[nodiscard]] wide const& weights(tensor_id t, tensor_values<Tensor> const& parameters) const override {
            return optimizer_.weights(t, parameters);
        }
        void step(tensor_values<Tensor>& parameters, gradients_of<Tensor> const& gradients,
                  host_number<Tensor> factor) override {
            optimizer_.step(parameters, gradients, factor);
        }
        [[nodiscard]] std::uint64_t steps() const override { return optimizer_.steps(); }
        [[nodiscard]] std::size_t moment_count() const override { return Rule::moments; }
        [[nodiscard]] moments_of const& moments() const override { return optimizer_.moments(); }
        void resume(std::uint64_t steps, moments_of moments) override { optimizer_.resume(steps, std::move(moments)); }

    private:
        master_optimizer<Tensor, Rule> optimizer_;
    };
    return std::make_unique<of_rule>(std::move(rule));
}

} // namespace heddle::cli
